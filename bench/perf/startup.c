/* SPDX-License-Identifier: Apache-2.0 */
#include "startup.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <stepaf/stepaf.h>

#include "clock.h"
#include "fail.h"

enum { KEY_BYTES = 64, REGION_BYTES = 64, REGION_STEP = 2 * REGION_BYTES };

/* What the library has asked of its bootstrap. */
struct counter {
    const stepaf_boot_t *under;
    int calls;
    size_t bytes, all_bytes;
};

static stepaf_status_t count_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                       size_t *offsets_p, int64_t timeout_us)
{
    struct counter *counter = self;
    stepaf_status_t status =
        counter->under->allgather(counter->under->self, data, bytes, all_p, offsets_p, timeout_us);

    counter->calls++;
    counter->bytes += bytes;
    if (status == STEPAF_OK)
        counter->all_bytes += offsets_p[counter->under->size];
    return status;
}

/* Take what was counted since the last time; NULL: nothing was. Collective. */
static int take_count(struct perf_job *job, struct counter *counter,
                      struct perf_startup_exchanges *exchanges)
{
    if (counter == NULL)
        return 0;
    exchanges->calls = counter->calls;
    if (perf_job_max(job, (double)counter->bytes, &exchanges->bytes) != 0 ||
        perf_job_max(job, (double)counter->all_bytes, &exchanges->all_bytes) != 0)
        return -1;
    *counter = (struct counter){.under = counter->under};
    return 0;
}

/* Init and commit need none. */
static stepaf_status_t no_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                  int64_t timeout_us)
{
    (void)self;
    (void)group;
    (void)ranks;
    (void)n;
    (void)timeout_us;
    return stepaf_boot_set_error(STEPAF_ERR_UNSUPPORTED, "the counting bootstrap has no barrier");
}

/* Keys in pairs, one for each direction, and a plan for each pair. */
static stepaf_status_t declare_keys(stepaf_context_h ctx, uint64_t n_keys)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint64_t key = 0; key < n_keys && status == STEPAF_OK; key++) {

        status = stepaf_key_declare(ctx, key, key % 2 ? STEPAF_PULL : STEPAF_PUSH, KEY_BYTES, NULL);
    }
    return status;
}

static stepaf_status_t create_plans(stepaf_context_h ctx, uint64_t n_keys, char *memory,
                                    stepaf_plan_h *plans_p)
{
    int ffn = stepaf_size(ctx, STEPAF_GROUP_FFN);
    stepaf_tensor_t *pull = calloc((size_t)ffn, sizeof(*pull));
    stepaf_status_t status = pull != NULL ? STEPAF_OK : STEPAF_ERR_NO_MEMORY;

    for (uint64_t key = 0; key < n_keys && status == STEPAF_OK; key += 2) {
        stepaf_tensor_t push = {key, memory, KEY_BYTES};
        int n_pull = key + 1 < n_keys ? ffn : 0;
        memory += KEY_BYTES;
        for (int f = 0; f < n_pull; f++, memory += KEY_BYTES)
            pull[f] = (stepaf_tensor_t){key + 1, memory, KEY_BYTES};
        status = stepaf_plan_create(ctx, &push, 1, pull, n_pull, 0, plans_p++);
    }
    free(pull);
    return status;
}

static stepaf_status_t declare(stepaf_context_h ctx, uint64_t n_keys, stepaf_plan_h *plans_p)
{
    size_t pairs = (n_keys + 1) / 2;
    size_t bytes = pairs * (1 + (size_t)stepaf_size(ctx, STEPAF_GROUP_FFN)) * KEY_BYTES;
    stepaf_status_t status = declare_keys(ctx, n_keys);
    void *memory;

    if (status != STEPAF_OK || stepaf_role(ctx) != STEPAF_ATTENTION)
        return status;
    status = stepaf_alloc(ctx, bytes, STEPAF_MEM_HOST, &memory);
    return status == STEPAF_OK ? create_plans(ctx, n_keys, memory, plans_p) : status;
}

/* The plans first; NULL is none. One key more, so that there is something to commit. */
static stepaf_status_t withdraw(stepaf_context_h ctx, uint64_t n_keys, const stepaf_plan_h *plans)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint64_t i = 0; i < (n_keys + 1) / 2 && status == STEPAF_OK; i++)
        status = plans[i] != NULL ? stepaf_plan_destroy(plans[i]) : STEPAF_OK;
    for (uint64_t key = 0; key < n_keys && status == STEPAF_OK; key++)
        status = stepaf_key_withdraw(ctx, key);
    return status == STEPAF_OK ? stepaf_key_declare(ctx, n_keys, STEPAF_PUSH, KEY_BYTES, NULL)
                               : status;
}

/* Agree on @a status, and on the longest of the times since @a begin_ns. */
static int lap(struct perf_job *job, stepaf_status_t status, const char *call, int64_t begin_ns,
               double *us_p)
{
    double us = (double)(perf_now_ns() - begin_ns) / 1e3;

    if (perf_job_agree(job, status == STEPAF_OK ? 0 : perf_fail_status(status, call)) != 0)
        return -1;
    return perf_job_max(job, us, us_p);
}

/* Open files of this process, and how many of them are sockets. */
static void count_files(double *files_p, double *sockets_p)
{
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;

    *files_p = *sockets_p = 0.0;
    if (directory == NULL)
        return;
    while ((entry = readdir(directory)) != NULL) {
        struct stat status;

        if (fstatat(dirfd(directory), entry->d_name, &status, 0) != 0 || entry->d_name[0] == '.')
            continue;
        *files_p += 1.0;
        *sockets_p += S_ISSOCK(status.st_mode);
    }
    closedir(directory);
}

/* After commit: what the context holds that was not there before. */
static int take_holdings(struct perf_job *job, stepaf_context_h ctx, double files, double sockets,
                         struct perf_startup *startup)
{
    stepaf_memory_use_t use = {.size = sizeof(use)};
    double files_now;
    double sockets_now;

    count_files(&files_now, &sockets_now);
    if (perf_links_learn(job, ctx, startup->transport) != 0 ||
        perf_job_max(job, files_now - files, &startup->files) != 0 ||
        perf_job_max(job, sockets_now - sockets, &startup->sockets) != 0)
        return -1;
    if (stepaf_memory_query(ctx, &use) != STEPAF_OK)
        use = (stepaf_memory_use_t){.size = sizeof(use)};
    return perf_job_max(job, (double)use.fixed, &startup->fixed_bytes) != 0 ||
                   perf_job_max(job, (double)use.per_peer, &startup->per_peer_bytes) != 0
               ? -1
               : 0;
}

static stepaf_status_t register_regions(stepaf_context_h ctx, uint64_t n, char *memory)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint64_t i = 0; i < n && status == STEPAF_OK; i++)
        status = stepaf_register(ctx, memory + i * REGION_STEP, REGION_BYTES);
    return status;
}

static stepaf_status_t deregister_regions(stepaf_context_h ctx, uint64_t n, char *memory)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint64_t i = 0; i < n && status == STEPAF_OK; i++)
        status = stepaf_deregister(ctx, memory + i * REGION_STEP);
    return status;
}

/* How long as many regions as keys take. */
static int measure_regions(struct perf_job *job, stepaf_context_h ctx, uint64_t n,
                           struct perf_startup *startup)
{
    char *memory = malloc(n * REGION_STEP);
    int rc = perf_job_agree(job, memory != NULL ? 0 : perf_fail("out of memory"));
    int64_t begin_ns = perf_now_ns();

    if (rc == 0)
        rc = lap(job, register_regions(ctx, n, memory), "stepaf_register", begin_ns,
                 &startup->register_us);
    begin_ns = perf_now_ns();
    if (rc == 0)
        rc = lap(job, deregister_regions(ctx, n, memory), "stepaf_deregister", begin_ns,
                 &startup->deregister_us);
    if (rc != 0)
        stepaf_finalize(
            ctx); /* some may be registered still; the caller's finds nothing any more */
    free(memory);
    return rc;
}

/* And how long it takes to be rid of all again. */
static int withdraw_all(struct perf_job *job, stepaf_context_h ctx, uint64_t n_keys,
                        const stepaf_plan_h *plans, struct perf_startup *startup)
{
    int64_t begin_ns = perf_now_ns();

    if (lap(job, withdraw(ctx, n_keys, plans), "withdrawing keys", begin_ns,
            &startup->withdraw_us) != 0)
        return -1;
    begin_ns = perf_now_ns();
    return lap(job, stepaf_commit(ctx), "stepaf_commit", begin_ns, &startup->commit_again_us);
}

/* Start once: with @a boot NULL as always, else on a bootstrap that counts. */
static int start_once(struct perf_job *job, const struct perf_options *options, uint64_t n_keys,
                      const stepaf_boot_t *boot, struct perf_startup *startup)
{
    stepaf_plan_h *plans = calloc(n_keys / 2 + 1, sizeof(stepaf_plan_h));
    struct counter *counter = boot != NULL ? boot->self : NULL;
    stepaf_context_h ctx = NULL;
    stepaf_params_t params;
    stepaf_status_t status;
    double files;
    double sockets;
    int64_t begin_ns;
    int rc;

    if (perf_job_agree(job, plans != NULL ? 0 : perf_fail("out of memory")) != 0) {
        free(plans);
        return -1;
    }
    perf_place_params(options, &params);
    count_files(&files, &sockets);
    begin_ns = perf_now_ns();
    status = boot != NULL ? stepaf_init(boot, &params, &ctx) : job->join(job, &params, &ctx);
    rc = lap(job, status, "stepaf_init", begin_ns, &startup->init_us);
    if (rc == 0)
        rc = take_count(job, counter, &startup->init);
    if (rc == 0) {
        begin_ns = perf_now_ns();
        rc =
            lap(job, declare(ctx, n_keys, plans), "declaring keys", begin_ns, &startup->declare_us);
    }
    if (rc == 0) {
        begin_ns = perf_now_ns();
        rc = lap(job, stepaf_commit(ctx), "stepaf_commit", begin_ns, &startup->commit_us);
    }
    if (rc == 0)
        rc = take_count(job, counter, &startup->commit);
    if (rc == 0)
        rc = take_holdings(job, ctx, files, sockets, startup);
    if (rc == 0)
        rc = measure_regions(job, ctx, n_keys, startup);
    if (rc == 0)
        rc = withdraw_all(job, ctx, n_keys, plans, startup);
    stepaf_finalize(ctx);
    free(plans);
    return rc;
}

int perf_startup_measure(struct perf_job *job, const struct perf_options *options,
                         struct perf_startup *startup_p, struct perf_startup *few_p)
{
    struct counter counter = {.under = &job->channel};
    stepaf_boot_t boot = {.name = "counting",
                          .self = &counter,
                          .rank = job->channel.rank,
                          .size = job->channel.size,
                          .app_number = job->channel.app_number,
                          .allgather = count_allgather,
                          .barrier = no_barrier};
    struct perf_startup startup = {.mpi_init_us = -1.0};
    struct perf_startup counted = {.mpi_init_us = -1.0};

    if (perf_job_max(job, (double)job->mpi_init_ns, &startup.mpi_init_us) != 0 ||
        start_once(job, options, options->keys, NULL, &startup) != 0 ||
        start_once(job, options, options->keys, &boot, &counted) != 0)
        return -1;
    if (options->keys >= PERF_GROWTH_KEYS &&
        start_once(job, options, options->keys / PERF_GROWTH_TIMES, NULL, few_p) != 0)
        return -1;
    if (startup.mpi_init_us > 0)
        startup.mpi_init_us /= 1e3;
    startup.init = counted.init;
    startup.commit = counted.commit;
    *startup_p = startup;
    return 0;
}
