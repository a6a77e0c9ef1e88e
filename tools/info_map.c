/* SPDX-License-Identifier: Apache-2.0 */
/* The map of a job: every attention rank pushes a small and a large tensor over each of its
 * links and gets them back; then the library compares what its transports have written with what
 * they were given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/stepaf.h>

#include "boot/boot_auto.h"
#include "info.h"
#include "info_map.h"
#include "step.h"

enum { TENSORS = 2, SMALL_BYTES = 8, LARGE_BYTES = 1 << 20, ALL_BYTES = SMALL_BYTES + LARGE_BYTES };

static const size_t sizes[TENSORS] = {SMALL_BYTES, LARGE_BYTES};

/* Push key t is 2t, the key of its answers 2t + 1. */
static stepaf_status_t declare(stepaf_context_h ctx)
{
    stepaf_status_t status = STEPAF_OK;
    for (uint64_t k = 0; k < 2 * TENSORS && status == STEPAF_OK; k++) {
        status = stepaf_key_declare(ctx, k, k % 2 ? STEPAF_PULL : STEPAF_PUSH, sizes[k / 2], NULL);
    }
    return status;
}

/* Fill with the bytes that attention rank @a rank pushes; never 0, the value of untouched
 * memory. */
static void fill(unsigned char *bytes, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)((unsigned)rank * 31 + i % 251) | 1;
}

static int is_filled(const unsigned char *bytes, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != ((unsigned char)((unsigned)rank * 31 + i % 251) | 1))
            return 0;
    return 1;
}

static int count_peers(stepaf_context_h ctx, stepaf_group_t group)
{
    int n = 0;
    for (int rank = 0; rank < stepaf_size(ctx, group); rank++)
        n += stepaf_transport_name(ctx, rank) != NULL;
    return n;
}

/* Sources and destinations are of both kinds: the library's memory and this program's own. */
static int attend(stepaf_context_h ctx, unsigned char *back, int n_ffn)
{
    stepaf_tensor_t push[TENSORS];
    stepaf_tensor_t *pull = calloc((size_t)n_ffn * TENSORS, sizeof *pull);
    stepaf_request_h request;
    stepaf_plan_h plan;
    int me = stepaf_rank(ctx, STEPAF_GROUP_ATTENTION);
    void *out;
    stepaf_status_t status = pull ? STEPAF_OK : STEPAF_ERR_NO_MEMORY;
    if (status == STEPAF_OK)
        status = stepaf_alloc(ctx, ALL_BYTES, STEPAF_MEM_HOST, &out);
    if (status == STEPAF_OK) {
        fill(out, SMALL_BYTES, me);
        fill((unsigned char *)out + SMALL_BYTES, LARGE_BYTES, me);
        for (size_t t = 0; t < TENSORS; t++)
            push[t] = (stepaf_tensor_t){2 * t, (char *)out + t * SMALL_BYTES, sizes[t]};
        for (size_t i = 0; i < (size_t)n_ffn * TENSORS; i++)
            pull[i] = (stepaf_tensor_t){2 * (i % TENSORS) + 1,
                                        back + i / TENSORS * ALL_BYTES + i % TENSORS * SMALL_BYTES,
                                        sizes[i % TENSORS]};
        status = stepaf_register(ctx, back, (size_t)n_ffn * ALL_BYTES);
    }
    if (status == STEPAF_OK)
        status = stepaf_plan_create(ctx, push, TENSORS, pull, n_ffn * TENSORS, 0, &plan);
    if (status == STEPAF_OK)
        status = stepaf_commit(ctx);
    if (status == STEPAF_OK)
        status = stepaf_start(plan, &request);
    if (status == STEPAF_OK)
        status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    free(pull);
    if (status != STEPAF_OK)
        return info_failed("map");
    for (int i = 0; i < n_ffn; i++)
        if (!is_filled(back + (size_t)i * ALL_BYTES, SMALL_BYTES, me) ||
            !is_filled(back + (size_t)i * ALL_BYTES + SMALL_BYTES, LARGE_BYTES, me)) {
            fprintf(stderr, "stepaf_info: map: an FFN rank's answer has wrong bytes\n");
            return 0;
        }
    return 1;
}

/* Send one batch back unchanged. */
static int answer(stepaf_batch_h batch)
{
    stepaf_tensor_t back[TENSORS];
    stepaf_request_h request;
    stepaf_batch_info_t from = {.size = sizeof(from)};
    stepaf_status_t status = stepaf_batch_query(batch, &from);
    for (int t = 0; t < TENSORS && status == STEPAF_OK; t++) {
        stepaf_tensor_info_t in = {.size = sizeof(in)};
        status = stepaf_batch_tensor(batch, t, &in);
        if (status != STEPAF_OK)
            break;
        back[t] = (stepaf_tensor_t){in.key + 1, in.data, in.bytes};
        if (!is_filled(in.data, in.bytes, from.attention_rank)) {
            fprintf(stderr, "stepaf_info: map: attention rank %d's tensor has wrong bytes\n",
                    from.attention_rank);
            return 0;
        }
    }
    if (status == STEPAF_OK)
        status = stepaf_respond(batch, back, TENSORS, 0, &request);
    if (status == STEPAF_OK)
        status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    if (status == STEPAF_OK)
        status = stepaf_release(batch);
    return status == STEPAF_OK || info_failed("map");
}

static int serve(stepaf_context_h ctx, int n_attention)
{
    int done = stepaf_commit(ctx) == STEPAF_OK || info_failed("map");
    for (int i = 0; i < n_attention && done; i++) {
        stepaf_batch_h batch;
        int n;
        done =
            stepaf_recv(ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n) == STEPAF_OK
                ? answer(batch)
                : info_failed("map");
    }
    return done;
}

/* Check whether both tensors have gone over every link of this rank. */
static int check_links(stepaf_context_h ctx, int n)
{
    for (int rank = 0, seen = 0; seen < n; rank++) {
        stepaf_link_info_t link = {.size = sizeof(link)};
        if (stepaf_transport_name(ctx, rank) == NULL)
            continue;
        seen++;
        if (stepaf_link_query(ctx, rank, &link) != STEPAF_OK)
            return info_failed("map");
        if (link.bytes_sent != ALL_BYTES || link.bytes_received != ALL_BYTES) {
            fprintf(stderr,
                    "stepaf_info: map: the link to world rank %d has carried %llu and %llu bytes, "
                    "not %d each way\n",
                    link.world_rank, (unsigned long long)link.bytes_sent,
                    (unsigned long long)link.bytes_received, ALL_BYTES);
            return 0;
        }
    }
    return 1;
}

int info_map_rank(stepaf_context_h ctx)
{
    int attends = stepaf_role(ctx) == STEPAF_ATTENTION;
    int n = count_peers(ctx, attends ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION);
    unsigned char *back = attends ? calloc((size_t)n, ALL_BYTES) : NULL;
    char *text = NULL;
    int is_written = 1;
    int done = 0;
    if (attends && !back)
        fprintf(stderr, "stepaf_info: map: out of memory\n");
    else if (declare(ctx) != STEPAF_OK)
        info_failed("map");
    else
        done = attends ? attend(ctx, back, n) : serve(ctx, n);
    if (done) {
        done =
            stepaf_map_check(ctx, STEPAF_TIMEOUT_DEFAULT, &text) == STEPAF_OK || info_failed("map");
        if (text) {
            fputs(text, stdout);
            is_written = fflush(stdout) == 0;
        }
        free(text);
        done = check_links(ctx, n) && done;
    }
    if (!is_written)
        perror("stepaf_info: standard output");
    /* No rank leaves while another one still waits for its last answer. */
    if (done)
        done = stepaf_barrier(ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK ||
               info_failed("map");
    stepaf_finalize(ctx);
    free(back);
    return done && is_written;
}

void info_map_params(int rank, int attention_ranks, stepaf_params_t *params_p)
{
    *params_p = (stepaf_params_t){.field_mask = 0};
    if (getenv("STEPAF_SPLIT") || getenv("STEPAF_ROLE"))
        return;
    params_p->field_mask = STEPAF_PARAM_ROLE;
    params_p->role = rank < attention_ranks ? STEPAF_ATTENTION : STEPAF_FFN;
}

struct forked {
    stepaf_boot_local_t *local;
    const struct info_job *job;
};

static int run_forked(void *arg, int rank)
{
    const struct forked *forked = arg;
    stepaf_params_t params;
    stepaf_context_h ctx;
    stepaf_boot_t boot;
    if (stepaf_boot_local_attach(forked->local, rank, -1, &boot) != STEPAF_OK)
        return info_failed("map");
    info_map_params(rank, forked->job->attention_ranks, &params);
    if (stepaf_init(&boot, &params, &ctx) != STEPAF_OK) {
        boot.close(boot.self);
        return rank ? 0 : info_failed("map"); /* all ranks would print the same */
    }
    return info_map_rank(ctx);
}

int info_map_fork(const struct info_job *job)
{
    int size = job->attention_ranks + job->ffn_ranks;
    struct forked forked = {.job = job};
    if (stepaf_boot_local_create(size, &forked.local) != STEPAF_OK)
        return info_failed("map");
    int done = info_fork(size, run_forked, &forked);
    stepaf_boot_local_destroy(forked.local);
    return done;
}

/* Run a rank of a job whose processes meet as the environment says; each prints its own failure,
 * since ranks that have not met cannot notify each other. */
static int run_met(void)
{
    stepaf_params_t params;
    stepaf_context_h ctx;
    stepaf_boot_t boot;
    if (stepaf_boot_open(&boot) != STEPAF_OK)
        return info_failed("map");
    info_map_params(boot.rank, boot.size - boot.size / 2, &params);
    if (stepaf_init(&boot, &params, &ctx) != STEPAF_OK) {
        int failed = info_failed("map");
        boot.close(boot.self);
        return failed;
    }
    return info_map_rank(ctx);
}

int info_map(const struct info_job *job)
{
    struct stepaf_env env;
    if (stepaf_env_load_boot(&env) != STEPAF_OK)
        return info_failed("map");
    int choice = stepaf_boot_choose(&env);
    int is_asked = env.boot != STEPAF_ENV_BOOT_auto;
    stepaf_env_free(&env);
    if (choice == STEPAF_ENV_BOOT_tcp || choice == STEPAF_ENV_BOOT_local)
        return run_met();
    if (info_map_is_launched())
        return info_map_launched();
    if (is_asked) {
        fprintf(stderr,
                "stepaf_info: map: STEPAF_BOOT=%s, but no launcher has started this process\n",
                choice == STEPAF_ENV_BOOT_mpi ? "mpi" : "pmix");
        return 0;
    }
    if (step_strangers()) {
        fprintf(stderr,
                "stepaf_info: map: srun has started %ld processes (SLURM_STEP_NUM_TASKS), but none "
                "finds the others: start it with srun --mpi=pmix\n",
                step_strangers());
        return 0;
    }
    return info_map_fork(job);
}
