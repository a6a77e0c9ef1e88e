/* SPDX-License-Identifier: Apache-2.0 */
/* The size of the library's own memory in a job: runs a small job in forked processes up to its
 * commit and asks each rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <stepaf/stepaf.h>

#include "info.h"

/* One rank's result, in memory shared with the parent. */
struct report {
    stepaf_role_t role;
    stepaf_memory_use_t use;
};

static stepaf_status_t declare(stepaf_context_h ctx, const struct info_job *job, uint64_t key,
                               stepaf_direction_t direction)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH, .depth = (unsigned)job->depth};
    return stepaf_key_declare(ctx, key, direction, (size_t)job->bytes, &params);
}

/* Push key k is 2k, the key of its answers 2k + 1. */
static stepaf_status_t declare_all(stepaf_context_h ctx, const struct info_job *job)
{
    stepaf_status_t status = STEPAF_OK;
    for (uint64_t k = 0; k < (uint64_t)job->keys && status == STEPAF_OK; k++) {
        status = declare(ctx, job, 2 * k, STEPAF_PUSH);
        if (status == STEPAF_OK)
            status = declare(ctx, job, 2 * k + 1, STEPAF_PULL);
    }
    return status;
}

/* Make a plan for up to STEPAF_MAX_TENSORS keys from @a first on. All push from the same memory;
 * each answer has a destination of its own for each slot. */
static stepaf_status_t make_plan(stepaf_context_h ctx, const struct info_job *job, int first,
                                 char *source, char *answers, stepaf_tensor_t *pulls)
{
    stepaf_tensor_t pushes[STEPAF_MAX_TENSORS];
    stepaf_plan_h plan;
    int n = job->keys - first < STEPAF_MAX_TENSORS ? job->keys - first : STEPAF_MAX_TENSORS;
    size_t place = (size_t)job->bytes * (size_t)job->depth;

    for (int i = 0; i < n; i++)
        pushes[i] = (stepaf_tensor_t){2 * (uint64_t)(first + i), source, (size_t)job->bytes};
    int n_pulls = n * stepaf_n_peers(ctx);
    for (int i = 0; i < n_pulls; i++)
        pulls[i] = (stepaf_tensor_t){2 * (uint64_t)(first + i % n) + 1, answers + (size_t)i * place,
                                     (size_t)job->bytes};
    return stepaf_plan_create(ctx, pushes, n, pulls, n_pulls, 0, &plan);
}

static stepaf_status_t make_plans(stepaf_context_h ctx, const struct info_job *job)
{
    size_t place = (size_t)job->bytes * (size_t)job->depth;
    size_t n_pulls = (size_t)stepaf_n_peers(ctx) * STEPAF_MAX_TENSORS;
    void *source;
    void *answers;
    stepaf_tensor_t *pulls = malloc(n_pulls * sizeof *pulls);
    if (!pulls)
        return STEPAF_ERR_NO_MEMORY;
    stepaf_status_t status = stepaf_alloc(ctx, (size_t)job->bytes, STEPAF_MEM_HOST, &source);
    if (status == STEPAF_OK)
        status = stepaf_alloc(ctx, n_pulls * place, STEPAF_MEM_HOST, &answers);
    for (int first = 0; first < job->keys && status == STEPAF_OK; first += STEPAF_MAX_TENSORS)
        status = make_plan(ctx, job, first, source, answers, pulls);
    free(pulls);
    return status;
}

/* The memory shared by the ranks. */
struct run {
    stepaf_boot_local_t *local;
    const struct info_job *job;
    struct report *reports;
};

/* Run one rank: join, declare, commit, ask, leave. */
static stepaf_status_t live(const struct run *run, int rank)
{
    const struct info_job *job = run->job;
    struct report *report = &run->reports[rank];
    stepaf_params_t params = {
        .field_mask = STEPAF_PARAM_ROLE,
        .role = rank < job->attention_ranks ? STEPAF_ATTENTION : STEPAF_FFN,
    };
    stepaf_context_h ctx;
    stepaf_boot_t boot;
    stepaf_status_t status = stepaf_boot_local_attach(run->local, rank, -1, &boot);
    if (status != STEPAF_OK)
        return status;
    status = stepaf_init(&boot, &params, &ctx);
    if (status != STEPAF_OK) {
        boot.close(boot.self);
        return status;
    }
    report->role = params.role;
    status = declare_all(ctx, job);
    if (status == STEPAF_OK && params.role == STEPAF_ATTENTION)
        status = make_plans(ctx, job);
    if (status == STEPAF_OK)
        status = stepaf_commit(ctx);
    report->use.size = sizeof(report->use);
    if (status == STEPAF_OK)
        status = stepaf_memory_query(ctx, &report->use);
    /* No rank leaves while another one is still in its commit. */
    if (status == STEPAF_OK)
        status = stepaf_barrier(ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT);
    stepaf_finalize(ctx);
    return status;
}

static int run_rank(void *arg, int rank)
{
    return live(arg, rank) == STEPAF_OK || info_failed("memory");
}

static void print_reports(const struct report *reports, int size)
{
    size_t per_peer = 0;
    double per_key = 0.0;
    printf("%4s %-9s %5s %8s %8s %8s %9s %7s %7s %9s %8s\n", "rank", "role", "peers", "fixed",
           "declared", "per_peer", "key_peers", "per_key", "each", "receive", "bounce");
    for (int rank = 0; rank < size; rank++) {
        const stepaf_memory_use_t *use = &reports[rank].use;
        double each = use->key_peers ? (double)use->per_key / (double)use->key_peers : 0.0;
        printf("%4d %-9s %5zu %8zu %8zu %8zu %9zu %7zu %7.1f %9zu %8zu\n", rank,
               reports[rank].role == STEPAF_ATTENTION ? "attention" : "ffn", use->peers, use->fixed,
               use->declared, use->per_peer, use->key_peers, use->per_key, each, use->receive,
               use->bounce);
        per_peer = use->per_peer > per_peer ? use->per_peer : per_peer;
        per_key = each > per_key ? each : per_key;
    }
    printf("\nat most %zu bytes a peer, %.1f bytes a key and peer (of one slot)\n", per_peer,
           per_key);
}

int info_memory(const struct info_job *job)
{
    int size = job->attention_ranks + job->ffn_ranks;
    size_t bytes = (size_t)size * sizeof(struct report);
    struct run run = {.job = job};
    struct report *reports =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (reports == MAP_FAILED) {
        perror("stepaf_info: mmap");
        return 0;
    }
    int done = 0;
    run.reports = reports;
    if (stepaf_boot_local_create(size, &run.local) != STEPAF_OK) {
        info_failed("memory");
        goto out;
    }
    printf("%d attention and %d FFN ranks; %d keys of %d bytes each way, depth %d\n",
           job->attention_ranks, job->ffn_ranks, job->keys, job->bytes, job->depth);
    done = info_fork(size, run_rank, &run); /* each wait of a rank has its deadline */
    if (done)
        print_reports(reports, size);
    stepaf_boot_local_destroy(run.local);
out:
    munmap(reports, bytes);
    return done;
}
