/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of stepaf_info: each prints one thing to standard output. Those that can fail say why
 * on standard error and return 0. */
#ifndef STEPAF_TOOLS_INFO_H
#define STEPAF_TOOLS_INFO_H

#include <stddef.h>

#include <stepaf/status.h>

#include "settings/settings.h"

enum { INFO_TRANSPORT_TEXT = 400 };

struct stepaf_transport_ops;

/* The settings. A setting with a bad value has its default, and a sentence about the value. */
struct info_env {
    struct stepaf_env values;
    char bad[STEPAF_ENV_COUNT][STEPAF_ERROR_TEXT_MAX]; /* "" for all valid settings */
};

/* The job whose memory is measured. */
struct info_job {
    int attention_ranks;
    int ffn_ranks;
    int keys; /* pushed, and as many pulled from each FFN rank */
    int depth;
    int bytes; /* of each tensor */
};

/* Return 0 if some settings are bad, after printing why for each. Free the values with
 * stepaf_env_free. */
int info_load(struct info_env *env_p);

void info_build(void);
void info_settings(const struct info_env *env, int only_from_environment);
void info_settings_help(void);
void info_transports(const struct stepaf_env *env);
/* Return whether the transport can be used. @a text, of INFO_TRANSPORT_TEXT characters: what it
 * requires, or why it cannot. */
int info_transport(const struct stepaf_env *env, const struct stepaf_transport_ops *ops,
                   char *text);
/* Why a transport that STEPAF_TRANSPORTS does not admit is not used. */
const char *info_not_listed(const struct stepaf_env *env);
/* Fails in builds without jansson. */
int info_json(const struct info_env *env);
int info_topology(int with_tree);
void info_gpu(void);
int info_memory(const struct info_job *job);
/* Under a launcher, the job is the one that the launcher has started. */
int info_map(const struct info_job *job);
void info_man(void);

/* The body of a rank of a forked job; returns whether it succeeded. */
typedef int (*info_rank_t)(void *arg, int rank);

/* Run @a size ranks, each in a process of its own, and wait for them. If a process cannot be
 * forked, the existing ones are ended immediately. */
int info_fork(int size, info_rank_t run, void *arg);

/* Print the library's last error on standard error, and return 0. */
int info_failed(const char *what);

/* Print @a text in lines of at most 80 columns, each indented by @a indent blanks. */
void info_print_wrapped(const char *text, int indent);

#endif
