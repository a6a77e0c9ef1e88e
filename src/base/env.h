/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: read from the environment once per context, here and nowhere else. */
#ifndef STEPAF_BASE_ENV_H
#define STEPAF_BASE_ENV_H

#include <stdio.h>

#include <stepaf/types.h>

/* Index of each setting in the table. */
enum stepaf_env_index {
#define INT(NAME, ...) STEPAF_ENV_##NAME,
#define ENUM(NAME, ...) STEPAF_ENV_##NAME,
#define STR(NAME, ...) STEPAF_ENV_##NAME,
#include "base/env_def.h"
#undef INT
#undef ENUM
#undef STR
    STEPAF_ENV_COUNT
};

/* Values in force. Strings are owned by the struct. */
struct stepaf_env {
#define INT(NAME, field, ...) int64_t field;
#define ENUM(NAME, field, ...) int field;
#define STR(NAME, field, ...) char *field;
#include "base/env_def.h"
#undef INT
#undef ENUM
#undef STR
    uint8_t from_environment[STEPAF_ENV_COUNT];
};

/* Words of the ENUM settings, in table order. */
enum { STEPAF_ENV_ROLE_ATTENTION, STEPAF_ENV_ROLE_FFN, STEPAF_ENV_ROLE_AUTO };
enum { STEPAF_ENV_MESH_FULL, STEPAF_ENV_MESH_LANE };
enum {
    STEPAF_ENV_BACKOFF_AUTO,
    STEPAF_ENV_BACKOFF_SPIN,
    STEPAF_ENV_BACKOFF_YIELD,
    STEPAF_ENV_BACKOFF_SLEEP
};
enum { STEPAF_ENV_BOOT_MPI, STEPAF_ENV_BOOT_PMIX, STEPAF_ENV_BOOT_LOCAL, STEPAF_ENV_BOOT_AUTO };
enum { STEPAF_ENV_CMA_AUTO, STEPAF_ENV_CMA_ON, STEPAF_ENV_CMA_OFF };
enum { STEPAF_ENV_ZEROCOPY_AUTO, STEPAF_ENV_ZEROCOPY_ON, STEPAF_ENV_ZEROCOPY_OFF };
enum { STEPAF_ENV_NOTIFY_AUTO, STEPAF_ENV_NOTIFY_IMM, STEPAF_ENV_NOTIFY_SEND };
enum { STEPAF_ENV_SLEEP_POLL, STEPAF_ENV_SLEEP_EVENT };
enum { STEPAF_ENV_CONNECT_AUTO, STEPAF_ENV_CONNECT_OOB, STEPAF_ENV_CONNECT_CM };
enum { STEPAF_ENV_ORDER_RELAXED, STEPAF_ENV_ORDER_STRICT };
enum { STEPAF_ENV_GPU_AUTO, STEPAF_ENV_GPU_DMABUF, STEPAF_ENV_GPU_PEERMEM, STEPAF_ENV_GPU_STAGED };
enum { STEPAF_ENV_LAG_AUTO, STEPAF_ENV_LAG_1, STEPAF_ENV_LAG_2, STEPAF_ENV_LAG_OFF };
enum { STEPAF_ENV_ENGINE_AUTO, STEPAF_ENV_ENGINE_SM, STEPAF_ENV_ENGINE_CE };
enum { STEPAF_ENV_RELAY_AUTO, STEPAF_ENV_RELAY_ALWAYS };
enum { STEPAF_ENV_TRACE_ON, STEPAF_ENV_TRACE_OFF };
enum { STEPAF_ENV_CLOCK_AUTO, STEPAF_ENV_CLOCK_PING };

/* How the parser gets a variable: getenv, or a fake in tests. */
typedef const char *(*stepaf_env_get_t)(const char *name, void *arg);

/* Fill *env_p from the process's environment. A bad value is STEPAF_ERR_SETTING, its sentence
 * naming variable, value and syntax; nothing is left allocated and *env_p is unchanged. Configures
 * the log by what it has read, then logs a warning for each unknown STEPAF_* variable, once per
 * process. */
stepaf_status_t stepaf_env_load(struct stepaf_env *env_p);

/* Only the settings that say which bootstrap; all others have their defaults. Those are judged when
 * the other ranks can be told. Warns about nothing, and leaves the log alone. */
stepaf_status_t stepaf_env_load_boot(struct stepaf_env *env_p);

/* STEPAF_INIT_TIMEOUT_US by itself, whatever is wrong with others; its default where it is bad. Leaves
 * the last failure as it is. */
int64_t stepaf_env_init_timeout_us(void);

/* All of them from any source; warns about nothing. */
stepaf_status_t stepaf_env_load_from(struct stepaf_env *env_p, stepaf_env_get_t get, void *arg);

void stepaf_env_free(struct stepaf_env *env);

/* Digest of the settings that must agree between ranks, for init's exchange: never 0. */
uint64_t stepaf_env_digest(const struct stepaf_env *env);

/* Value of setting @a index as text into @a text (for the exchange's error sentence, and
 * stepaf_info). Truncates. */
void stepaf_env_format(const struct stepaf_env *env, int index, char *text, size_t capacity);

/* What the table says of a setting. */
struct stepaf_env_info {
    const char *name;     /* with STEPAF_ */
    const char *fallback; /* default as text */
    const char *syntax;   /* "1..32", "a|b", free text */
    const char *unit;     /* "" if none */
    const char *help;
    int must_agree;
};
void stepaf_env_describe(int index, struct stepaf_env_info *info_p);

#endif
