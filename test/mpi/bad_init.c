/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input to stepaf_init: parameters, splits, settings, bootstraps. A failure that one rank finds
 * is told to all, nothing is left behind, and the same bootstrap works afterwards.
 * Runs on any number of ranks; split "attn=1,ffn=rest" is the good one. */
#include "bad_init.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char bad_split[64];

stepaf_params_t bad_good_params(void)
{
    return (stepaf_params_t){.field_mask = STEPAF_PARAM_SPLIT, .split = bad_split};
}

bool bad_try(struct hs_job *job, const stepaf_params_t *params, stepaf_status_t want,
             const char *what)
{
    stepaf_context_h ctx = NULL;
    stepaf_status_t status = hs_init(job, 0, params, &ctx);
    bool good = want != STEPAF_INPROGRESS ? HS_REFUSED(status, want)
                                          : HS_TRUE(status < 0) && HS_REFUSED(status, status);

    good = good && HS_TRUE(ctx == NULL);
    if (status == STEPAF_OK)
        stepaf_finalize(ctx);
    return good || HS_FAILED("%s", what);
}

/* One field wrong at every rank, then at the last one only. */
static void refuse(struct hs_job *job, stepaf_params_t params, const char *what)
{
    stepaf_params_t fine = bad_good_params();
    bool culprit = job->rank == job->size - 1;

    bad_try(job, &params, STEPAF_ERR_INVALID, what);
    bad_try(job, culprit ? &params : &fine, culprit ? STEPAF_ERR_INVALID : STEPAF_INPROGRESS, what);
}

static void bad_params(struct hs_job *job)
{
    stepaf_params_t params = bad_good_params();

    params.field_mask |= STEPAF_PARAM_ALL + 1;
    refuse(job, params, "unknown field");
    params.field_mask = 1ull << 63;
    refuse(job, params, "unknown field, the last");
    params = bad_good_params();
    params.field_mask |= STEPAF_PARAM_ROLE;
    params.role = (stepaf_role_t)3;
    refuse(job, params, "role");
    params.role = (stepaf_role_t)-1;
    refuse(job, params, "negative role");
    params = bad_good_params();
    params.field_mask |= STEPAF_PARAM_PROGRESS;
    params.progress = (stepaf_progress_mode_t)3;
    refuse(job, params, "progress");
    params = bad_good_params();
    params.field_mask |= STEPAF_PARAM_THREADS;
    params.threads = (stepaf_threads_t)2;
    refuse(job, params, "threads");
    HS_TRUE(hs_init(job, 0, NULL, NULL) < 0);
}

static void bad_splits(struct hs_job *job)
{
    static const char *const splits[] = {"interleave",
                                         "ffn=99",
                                         "attn=per-node:1,ffn=1",
                                         "attn=per-node:99",
                                         "attn=0,ffn=1",
                                         "attn=-1,ffn=3",
                                         "attn=1,ffn=1000",
                                         "attn",
                                         "attn=",
                                         "attn=1;ffn=1",
                                         "attn=a,ffn=b",
                                         "attn=99999999999999999999,ffn=1",
                                         "map=",
                                         "map=/nowhere/at/all",
                                         "map=/dev/null",
                                         "attn=1,ffn=1,backwards",
                                         "attn=1,attn=1",
                                         " ",
                                         "attn=1,ffn=1,",
                                         "attn=18446744073709551615,ffn=3"};
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT};
    char beyond[64];

    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        params.split = splits[i];
        if (job->size == 2 && strcmp(splits[i], "attn=1,ffn=1,") == 0)
            continue; /* whether a comma may follow is not said */
        bad_try(job, &params, STEPAF_ERR_SPLIT, splits[i]);
    }
    snprintf(beyond, sizeof beyond, "attn=%d,ffn=0", job->size);
    params.split = beyond;
    bad_try(job, &params, STEPAF_ERR_SPLIT, "no FFN rank");
    snprintf(beyond, sizeof beyond, "attn=0,ffn=%d", job->size);
    bad_try(job, &params, STEPAF_ERR_SPLIT, "no attention rank");
    snprintf(beyond, sizeof beyond, "attn=1,ffn=%d", job->size);
    bad_try(job, &params, STEPAF_ERR_SPLIT, "one too many");
    params = (stepaf_params_t){.field_mask = STEPAF_PARAM_ROLE, .role = STEPAF_ATTENTION};
    bad_try(job, &params, STEPAF_ERR_SPLIT, "all attention");
    params.role = STEPAF_FFN;
    bad_try(job, &params, STEPAF_ERR_SPLIT, "all FFN");
    if (job->apps == NULL)
        bad_try(job, NULL, STEPAF_ERR_SPLIT, "nobody says what the roles are");
    params = (stepaf_params_t){.field_mask = STEPAF_PARAM_SPLIT, .split = NULL};
    HS_TRUE(hs_init(job, 0, &params, &(stepaf_context_h){NULL}) < 0);
}

/* A bad value at one rank: it says which setting, and nobody goes on. */
static void bad_setting(struct hs_job *job, const char *name, const char *value)
{
    bool culprit = job->rank == 0;
    stepaf_params_t params = bad_good_params();
    char what[128];

    snprintf(what, sizeof what, "%s=%s", name, value);
    if (culprit)
        setenv(name, value, 1);
    if (bad_try(job, &params, culprit ? STEPAF_ERR_SETTING : STEPAF_INPROGRESS, what) && culprit &&
        strstr(stepaf_last_error()->text, name) == NULL)
        HS_FAILED("%s: the sentence does not name it: %s", what, stepaf_last_error()->text);
    unsetenv(name);
}

static void bad_settings(struct hs_job *job)
{
    static const char *const settings[][2] = {
        {"STEPAF_DEPTH", "0"},
        {"STEPAF_DEPTH", "33"},
        {"STEPAF_DEPTH", "-1"},
        {"STEPAF_DEPTH", "two"},
        {"STEPAF_DEPTH", "2x"},
        {"STEPAF_DEPTH", "99999999999999999999"},
        {"STEPAF_TIMEOUT_US", "0"},
        {"STEPAF_TIMEOUT_US", "3600000001"},
        {"STEPAF_INIT_TIMEOUT_US", "999"},
        {"STEPAF_COMMIT_TIMEOUT_US", "forever"},
        {"STEPAF_ROLE", "boss"},
        {"STEPAF_BACKOFF", "fast"},
        {"STEPAF_PROGRESS", "2"},
        {"STEPAF_SPIN_US", "-5"},
        {"STEPAF_SHM_CMA", "perhaps"},
        {"STEPAF_SHM_RING_SLOTS", "17"},
        {"STEPAF_SHM_FRAGMENT_BYTES", "5000"},
        {"STEPAF_TRACE", "yes"},
        {"STEPAF_TRACE_RECORDS", "100"},
        {"STEPAF_CLOCK", "sundial"},
        {"STEPAF_LOG_LEVEL", "loud"},
        {"STEPAF_TRANSPORTS", "carrier_pigeon"},
        {"STEPAF_NET_IF", "10.1.0.0/99"},
        {"STEPAF_NET_PORTS", "10-5"},
        {"STEPAF_VERBS_GID_INDEX", "abc"},
    };

    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        bad_setting(job, settings[i][0], settings[i][1]);
}

static void count_message(stepaf_log_level_t level, const char *file, int line, const char *message,
                          void *arg)
{
    (void)level, (void)file, (void)line;
    if (strstr(message, "/nowhere/at/all"))
        ++*(int *)arg;
}

/* A log file that cannot be opened is no failure, and said once. */
static void bad_log_file(struct hs_job *job)
{
    stepaf_params_t params = bad_good_params();
    stepaf_context_h ctx = NULL;
    int said = 0;

    setenv("STEPAF_LOG_FILE", "/nowhere/at/all", 1);
    stepaf_log_set_callback(count_message, &said);
    if (HS_OK(hs_init(job, 3, &params, &ctx)))
        HS_INT(said, ==, 1);
    stepaf_log_set_callback(NULL, NULL);
    unsetenv("STEPAF_LOG_FILE");
    stepaf_finalize(ctx);
}

/* The order in which sources of the role count. */
static void precedence(struct hs_job *job)
{
    stepaf_params_t params = bad_good_params();
    stepaf_context_h ctx = NULL;
    bool first = job->rank == 0;

    /* STEPAF_ROLE is stronger than the parameters' split, and that than STEPAF_SPLIT. */
    setenv("STEPAF_SPLIT", "attn=7,ffn=9", 1);
    setenv("STEPAF_ROLE", first ? "ffn" : "attention", 1);
    if (HS_OK(hs_init(job, 0, &params, &ctx))) {
        HS_INT(stepaf_role(ctx), ==, first ? STEPAF_FFN : STEPAF_ATTENTION);
        HS_INT(stepaf_size(ctx, STEPAF_GROUP_FFN), ==, 1);
    }
    stepaf_finalize(ctx);
    ctx = NULL;
    /* The parameters' role is stronger still. */
    params.field_mask |= STEPAF_PARAM_ROLE;
    params.role = first ? STEPAF_ATTENTION : STEPAF_FFN;
    hs_pause(job);
    if (HS_OK(hs_init(job, 1, &params, &ctx)))
        HS_INT(stepaf_role(ctx), ==, params.role);
    unsetenv("STEPAF_SPLIT");
    unsetenv("STEPAF_ROLE");
    stepaf_finalize(ctx);
    stepaf_finalize(ctx); /* stale: ignored */
}

static void body(struct hs_job *job)
{
    static const struct {
        const char *name;
        void (*run)(struct hs_job *job);
    } cases[] = {{"parameters", bad_params}, {"splits", bad_splits},
                 {"settings", bad_settings}, {"agreement", bad_agreement},
                 {"map files", bad_maps},    {"versions", bad_versions},
                 {"bootstraps", bad_boots},  {"contradictions", bad_contradictions},
                 {"nodes", bad_nodes},       {"precedence", precedence},
                 {"contexts", bad_contexts}, {"missing rank", bad_missing},
                 {"log file", bad_log_file}};
    int fds;

    snprintf(bad_split, sizeof bad_split, "attn=1,ffn=%d", job->size - 1);
    if (job->size < 2) {
        hs_skip("needs two ranks");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hs_step(cases[i].name);
        fds = hs_count_fds();
        cases[i].run(job);
        if (!hs_pause(job))
            return;
        if (!job->launched)
            HS_INT(hs_count_fds(), <=, fds);
        if (hs_failed()) {
            HS_FAILED("in case \"%s\"", cases[i].name);
            return;
        }
    }
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "bad_init", .options = "", .limit_s = 60, .n_boots = BAD_BOOTS, .body = body};
    return hs_main(argc, argv, &test);
}
