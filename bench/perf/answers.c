/* SPDX-License-Identifier: Apache-2.0 */
#include "answers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fail.h"
#include "lib.h"
#include "progress.h"
#include "row.h"
#include "stats.h"

/* Kinds of blocks, which take turns: all answers; some; some, while the last FFN rank is
 * stopped. */
enum { ALL, SOME, STOPPED, KINDS };

struct answers {
    const struct perf_options *options;
    const struct perf_place *place;
    struct perf_case c;
    struct perf_lib lib;
    struct perf_schedule schedule; /* of each kind; of the attention rank alone, as the samples */
    double *samples[KINDS];
};

/* ---- attention side ---- */

static int signal_last(const struct answers *a, int number)
{
    const struct perf_rank *last = &a->place->ranks[a->place->ffn_world[a->c.ffn - 1]];

    return kill(last->pid, number) == 0
               ? 0
               : perf_fail("the last FFN rank, process %d: %s", last->pid, strerror(errno));
}

static int need(struct answers *a, uint64_t n)
{
    for (unsigned m = 0; m < a->c.microbatches; m++) {
        stepaf_status_t status = stepaf_plan_set_answers(a->lib.plans[0][m], (int)n, 0);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_plan_set_answers");
    }
    return 0;
}

/* Until nobody owes anything. */
static int wait_for_rest(struct answers *a)
{
    for (unsigned w = 0; w < a->c.window; w++) {
        stepaf_status_t status = stepaf_wait_rest(a->lib.requests[w], a->options->run.timeout_us);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_wait_rest");
    }
    return 0;
}

static int run_block(struct answers *a, int kind, uint64_t round)
{
    uint64_t ops = a->schedule.timed_ops;
    double *samples = a->samples[kind] + round * ops;
    int rc = need(a, kind == ALL ? 0 : a->options->answers);

    if (rc == 0 && kind == STOPPED)
        rc = signal_last(a, SIGSTOP);
    if (rc != 0)
        return -1;
    rc = perf_attend_ops(&a->c, &a->lib, perf_lib_start, perf_lib_wait, a->schedule.lead_ops, NULL);
    if (rc == 0)
        rc = perf_attend_ops(&a->c, &a->lib, perf_lib_start, perf_lib_wait, ops, samples);
    if (kind == STOPPED && signal_last(a, SIGCONT) != 0)
        rc = -1;
    return rc == 0 ? wait_for_rest(a) : -1;
}

/* An operation that pushes nothing tells all FFN ranks that it is the last one. */
static int say_end(struct answers *a)
{
    stepaf_tensor_t push[PERF_MAX_PUSH];
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS |
                                                  STEPAF_START_PARAM_PUSH |
                                                  STEPAF_START_PARAM_ANSWERS,
                                    .flags = STEPAF_START_WAIT,
                                    .push = push,
                                    .n_push = a->c.n_push,
                                    .n_answers = a->c.ffn};
    stepaf_status_t status;

    for (int t = 0; t < a->c.n_push; t++)
        push[t] = (stepaf_tensor_t){perf_lib_key(0, STEPAF_PUSH, t), NULL, 0};
    status = stepaf_start_with(a->lib.plans[0][0], &params, &a->lib.requests[0]);
    if (status == STEPAF_OK)
        status = stepaf_wait(a->lib.requests[0], a->options->run.timeout_us);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "the last operation");
}

/* Run @a ops operations that all answer, and learn what one takes. */
static int estimate(struct answers *a, uint64_t ops, double *op_us_p)
{
    int64_t start_ns = perf_now_ns();

    if (perf_attend_ops(&a->c, &a->lib, perf_lib_start, perf_lib_wait, ops, NULL) != 0)
        return -1;
    *op_us_p = (double)(perf_now_ns() - start_ns) / 1e3 / (double)ops;
    return 0;
}

/* Warm up, as far as there is time for it, and decide how many operations to measure. */
static int warm_up(struct answers *a)
{
    unsigned window = a->c.window;
    double op_us;
    uint64_t ops;

    for (int i = 0; i < 2; i++) {
        if (estimate(a, window, &op_us) != 0)
            return -1;
    }
    ops = perf_schedule_warmup(a->options, op_us);
    if (ops > 0 && estimate(a, perf_schedule_whole(ops, window), &op_us) != 0)
        return -1;
    perf_schedule_make(a->options, window, op_us, &a->schedule);
    return say_end(a);
}

static int attend(struct answers *a, int row)
{
    for (uint64_t round = 0; round < a->schedule.rounds; round++) {
        perf_progress(a->options, row, round, a->schedule.rounds);
        for (int kind = 0; kind < KINDS; kind++)
            if (run_block(a, kind, round) != 0)
                return -1;
    }
    return say_end(a);
}

/* ---- FFN side ---- */

static int answer(struct perf_lib *lib, stepaf_batch_h batch, int *is_last_p)
{
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_status_t status = stepaf_batch_query(batch, &info);

    if (status == STEPAF_OK)
        status = stepaf_batch_tensor(batch, 0, &tensor);
    if (status != STEPAF_OK)
        return perf_fail_status(status, "stepaf_batch_tensor");
    int place = perf_lib_batch_place(lib, batch, &info);
    if (place < 0)
        return -1;
    status = stepaf_respond(batch, &lib->answers[place], 1, STEPAF_RESPOND_RELEASE, NULL);
    *is_last_p = tensor.bytes == 0;
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_respond");
}

static int serve(struct answers *a)
{
    struct perf_lib *lib = &a->lib;
    int is_last = 0;

    while (!is_last) {
        int n = 0;
        stepaf_status_t status =
            stepaf_recv(lib->ctx, STEPAF_FROM_ANY, 0, a->options->run.timeout_us, lib->batches,
                        lib->n_batches, &n);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_recv");
        for (int i = 0; i < n; i++)
            if (answer(lib, lib->batches[i], &is_last) != 0)
                return -1;
    }
    return 0;
}

/* ---- both ---- */

static void report(struct answers *a)
{
    struct perf_stats stats[KINDS];
    uint64_t n = a->schedule.rounds * a->schedule.timed_ops;

    for (int kind = 0; kind < KINDS; kind++) {
        perf_stats_of(a->samples[kind], n, &stats[kind]);
        double us = perf_clock_ns_per_tick / 1e3;
        char answers[32];
        snprintf(answers, sizeof(answers), "%d of %d",
                 kind == ALL ? a->c.ffn : (int)a->options->answers, a->c.ffn);
        printf("%12zu%12zu%14llu%12s%12s%12.3f%12.3f%12.3f", a->c.push_bytes, a->c.pull_bytes,
               (unsigned long long)n, answers, kind == STOPPED ? "one" : "none",
               stats[kind].p50 * us, stats[kind].p99 * us, stats[kind].p999 * us);
        if (kind == ALL)
            printf("%12s\n", "-");
        else
            printf("%12.3f\n", stats[kind].p99 / stats[SOME].p99);
    }
    fflush(stdout);
}

static int allocate(struct answers *a)
{
    for (int kind = 0; kind < KINDS && a->place->role == STEPAF_ATTENTION; kind++) {
        a->samples[kind] = calloc(a->schedule.rounds * a->schedule.timed_ops, sizeof(double));
        if (a->samples[kind] == NULL)
            return perf_fail("out of memory");
    }
    return 0;
}

static int run_row(struct perf_job *job, struct answers *a, int row)
{
    const struct perf_place *place = a->place;
    int attends = place->role == STEPAF_ATTENTION;

    perf_case_make(a->options, row, place->attn, place->ffn, &a->c);
    if (perf_lib_open(job, a->options, &a->c, place, &a->lib) != 0 ||
        perf_job_end_block(job, a->lib.ctx, attends ? warm_up(a) : serve(a)) != 0 ||
        perf_job_agree(job, allocate(a)) != 0 ||
        perf_job_end_block(job, a->lib.ctx, attends ? attend(a, row) : serve(a)) != 0)
        return -1;
    perf_progress_clear();
    if (attends)
        report(a);
    return 0;
}

static int check(const struct perf_options *options, const struct perf_place *place)
{
    if (place->attn != 1 || place->ffn < 2)
        return perf_fail("--answers requires one attention rank and several FFN ranks");
    if (options->answers >= (uint64_t)place->ffn)
        return perf_fail("--answers %llu: of %d, the last is to be stopped",
                         (unsigned long long)options->answers, place->ffn);
    if (place->ranks[place->attn_world[0]].node_id !=
        place->ranks[place->ffn_world[place->ffn - 1]].node_id)
        return perf_fail("--answers: the attention rank cannot stop the last FFN rank, which is on "
                         "another host");
    return 0;
}

int perf_answers_run(struct perf_job *job, const struct perf_options *options,
                     const struct perf_place *place)
{
    int rc = perf_job_agree(job, check(options, place));

    if (rc == 0 && place->role == STEPAF_ATTENTION) {
        printf(
            "# blocks take turns; the ratio is to the p99 with as many answers and none stopped\n");
        printf("%12s%12s%14s%12s%12s%12s%12s%12s%12s\n", "#bytes", "#bytes", "#repetitions",
               "answers", "FFN ranks", "t_p50", "t_p99", "t_p999", "ratio");
        printf("%12s%12s%14s%12s%12s%12s%12s%12s%12s\n", "push", "pull", "", "", "stopped",
               "[usec]", "[usec]", "[usec]", "of t_p99");
    }
    for (int row = 0; rc == 0 && row < options->n_rows; row++) {
        struct answers a = {.options = options, .place = place};

        rc = run_row(job, &a, row);
        perf_lib_close(&a.lib);
        for (int kind = 0; kind < KINDS; kind++)
            free(a.samples[kind]);
    }
    return rc;
}
