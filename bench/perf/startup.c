/* SPDX-License-Identifier: Apache-2.0 */
#include "startup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/stepaf.h>

#include "clock.h"
#include "fail.h"

enum { KEY_BYTES = 64 };

/* Exchanges that the library has asked for. */
struct counter {
    const stepaf_boot_t *under;
    int exchanges;
};

static stepaf_status_t count_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                       size_t *offsets_p, int64_t timeout_us)
{
    struct counter *counter = self;

    counter->exchanges++;
    return counter->under->allgather(counter->under->self, data, bytes, all_p, offsets_p,
                                     timeout_us);
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
    return stepaf_boot_error(STEPAF_ERR_UNSUPPORTED, "the counting bootstrap has no barrier");
}

/* Keys in pairs, one for each direction, and a plan for each pair. */
static stepaf_status_t declare_keys(stepaf_context_h ctx, uint64_t n_keys)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint64_t key = 0; key < n_keys && status == STEPAF_OK; key++) {
        stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DIRECTION | STEPAF_KEY_MAX_BYTES,
                                      .direction = key % 2 ? STEPAF_PULL : STEPAF_PUSH,
                                      .max_bytes = KEY_BYTES};

        status = stepaf_key_declare(ctx, key, &params);
    }
    return status;
}

static stepaf_status_t create_plans(stepaf_context_h ctx, uint64_t n_keys, char *memory)
{
    int ffn = stepaf_size(ctx, STEPAF_GROUP_FFN);
    stepaf_tensor_t *pull = calloc((size_t)ffn, sizeof(*pull));
    stepaf_status_t status = pull != NULL ? STEPAF_OK : STEPAF_ERR_NO_MEMORY;

    for (uint64_t key = 0; key < n_keys && status == STEPAF_OK; key += 2) {
        stepaf_tensor_t push = {key, memory, KEY_BYTES};
        int n_pull = key + 1 < n_keys ? ffn : 0;
        stepaf_plan_h plan;

        memory += KEY_BYTES;
        for (int f = 0; f < n_pull; f++, memory += KEY_BYTES)
            pull[f] = (stepaf_tensor_t){key + 1, memory, KEY_BYTES};
        status = stepaf_plan_create(ctx, &push, 1, pull, n_pull, 0, &plan);
    }
    free(pull);
    return status;
}

static stepaf_status_t declare(stepaf_context_h ctx, uint64_t n_keys)
{
    size_t pairs = (n_keys + 1) / 2;
    size_t bytes = pairs * (1 + (size_t)stepaf_size(ctx, STEPAF_GROUP_FFN)) * KEY_BYTES;
    stepaf_status_t status = declare_keys(ctx, n_keys);
    void *memory;

    if (status != STEPAF_OK || stepaf_role(ctx) != STEPAF_ATTENTION)
        return status;
    status = stepaf_alloc(ctx, bytes, STEPAF_MEM_HOST, &memory);
    return status == STEPAF_OK ? create_plans(ctx, n_keys, memory) : status;
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

/* Start once: with @a boot NULL as always, else on a bootstrap that counts. */
static int start_once(struct perf_job *job, const struct perf_options *options,
                      const stepaf_boot_t *boot, struct perf_startup *startup)
{
    const struct counter *counter = boot != NULL ? boot->self : NULL;
    stepaf_context_h ctx = NULL;
    stepaf_params_t params;
    stepaf_status_t status;
    int64_t begin_ns;
    int rc;

    perf_place_params(options, &params);
    begin_ns = perf_now_ns();
    status = boot != NULL ? stepaf_init(boot, &params, &ctx) : job->join(job, &params, &ctx);
    rc = lap(job, status, "stepaf_init", begin_ns, &startup->init_us);
    if (counter != NULL)
        startup->init_exchanges = counter->exchanges;
    if (rc == 0) {
        begin_ns = perf_now_ns();
        rc =
            lap(job, declare(ctx, options->keys), "declaring keys", begin_ns, &startup->declare_us);
    }
    if (rc == 0) {
        begin_ns = perf_now_ns();
        rc = lap(job, stepaf_commit(ctx), "stepaf_commit", begin_ns, &startup->commit_us);
    }
    if (counter != NULL)
        startup->commit_exchanges = counter->exchanges - startup->init_exchanges;
    stepaf_finalize(ctx);
    return rc;
}

int perf_startup_measure(struct perf_job *job, const struct perf_options *options,
                         struct perf_startup *startup_p)
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
        start_once(job, options, NULL, &startup) != 0 ||
        start_once(job, options, &boot, &counted) != 0)
        return -1;
    if (startup.mpi_init_us > 0)
        startup.mpi_init_us /= 1e3;
    startup.init_exchanges = counted.init_exchanges;
    startup.commit_exchanges = counted.commit_exchanges;
    *startup_p = startup;
    return 0;
}

static double ratio_of(const struct perf_startup *startup)
{
    return (startup->init_us + startup->commit_us) / startup->mpi_init_us;
}

void perf_startup_print(const struct perf_options *options, const struct perf_startup *startup)
{
    printf("# longest of all ranks; %llu keys\n", (unsigned long long)options->keys);
    printf("%-28s%14s%12s\n", "step", "time[usec]", "exchanges");
    if (startup->mpi_init_us > 0)
        printf("%-28s%14.1f\n", "MPI_Init", startup->mpi_init_us);
    printf("%-28s%14.1f%12d\n", "init", startup->init_us, startup->init_exchanges);
    printf("%-28s%14.1f\n", "declare keys and plans", startup->declare_us);
    printf("%-28s%14.1f%12d\n", "commit", startup->commit_us, startup->commit_exchanges);
    printf("%-28s%14.1f%12d\n", "init + commit", startup->init_us + startup->commit_us,
           startup->init_exchanges + startup->commit_exchanges);
    if (startup->mpi_init_us > 0)
        printf("%-28s%14.3f\n", "init + commit / MPI_Init", ratio_of(startup));
}

json_t *perf_startup_json(const struct perf_options *options, const struct perf_place *place,
                          const struct perf_startup *startup)
{
    json_t *object = json_object();

    if (object == NULL)
        return NULL;
    json_object_set_new(object, "test", json_string("startup"));
    json_object_set_new(object, "attn", json_integer(place->attn));
    json_object_set_new(object, "ffn", json_integer(place->ffn));
    json_object_set_new(object, "keys", json_integer((json_int_t)options->keys));
    json_object_set_new(object, "init_us", json_real(startup->init_us));
    json_object_set_new(object, "declare_us", json_real(startup->declare_us));
    json_object_set_new(object, "commit_us", json_real(startup->commit_us));
    json_object_set_new(object, "init_exchanges", json_integer(startup->init_exchanges));
    json_object_set_new(object, "commit_exchanges", json_integer(startup->commit_exchanges));
    if (startup->mpi_init_us > 0) {
        json_object_set_new(object, "mpi_init_us", json_real(startup->mpi_init_us));
        json_object_set_new(object, "ratio", json_real(ratio_of(startup)));
    }
    return object;
}
