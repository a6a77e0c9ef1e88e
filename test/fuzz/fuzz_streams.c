/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell of their stream plans in a commit: the first byte says whose is edited, an
 * attention rank's or the FFN rank's; the rest are the edits, or, if it is above 127, the blob
 * itself. Malformed it is refused; else all that is in it can be looked at, there is an outcome,
 * and if that is good, and what is told can be joined, everything that would be written lies in
 * memory that the peer has shared. */
#include <string.h>

#include "core/key_recv.h"
#include "core/plan.h"
#include "cpu_device/cpu_device.h"
#include "edit.h"
#include "fake.h"
#include "gpu/stream_advert.h"
#include "plans.h"
#include "wireup/advert.h"

enum { RANKS = 3, FFN_RANK = 2, N_PUSH = 3, DEPTH = 2, PUSH = 3000, SMALL = 8, PULL = 500 };

static const int ranks[] = {0, FFN_RANK}; /* by role */
static struct fake_job *telling[2], *joining[2];
static struct stepaf_pack packs[RANKS];
static struct stepaf_advert stream_advert[RANKS];

static void make_key(struct fake_job *job, uint64_t id, stepaf_direction_t direction, size_t bytes)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .depth = DEPTH,
                                  .mem_kind = STEPAF_MEM_CUDA};

    FUZZ_CHECK(stepaf_key_declare(job->handle, id, direction, bytes, &params) == STEPAF_OK);
}

/* Tensors that come in a head, by pieces, and in place; the last at an FFN rank only. At attention
 * ranks, in host memory. */
static struct fake_job *make_job(stepaf_role_t role)
{
    stepaf_tensor_t push[N_PUSH] = {{.key = 1}, {.key = 2}, {.key = 3}}, pull[2];
    struct fake_job *job = fake_open(role, 2, 1);
    stepaf_plan_h plan;
    uint8_t *data;

    job->ctx->env.cuda_engine =
        role == STEPAF_FFN ? STEPAF_ENV_CUDA_ENGINE_ce : STEPAF_ENV_CUDA_ENGINE_auto;
    job->ctx->env.cuda_mailbox =
        role == STEPAF_FFN ? STEPAF_ENV_CUDA_MAILBOX_gpu : STEPAF_ENV_CUDA_MAILBOX_host;
    make_key(job, 1, STEPAF_PUSH, PUSH);
    make_key(job, 2, STEPAF_PUSH, SMALL);
    make_key(job, 3, STEPAF_PUSH, PUSH + 1);
    make_key(job, 4, STEPAF_PULL, PULL);
    FUZZ_CHECK(stepaf_alloc(job->handle, N_PUSH * 4096 + 2 * DEPTH * PULL, STEPAF_MEM_CUDA,
                            (void **)&data) == STEPAF_OK);
    for (int i = 0; i < N_PUSH && role == STEPAF_ATTENTION; i++) {
        push[i].data = data + (size_t)i * 4096;
        push[i].bytes = i == 1 ? SMALL : PUSH;
    }
    for (uint32_t p = 0; p < job->ctx->n_peers; p++)
        pull[p] = (stepaf_tensor_t){4, data + N_PUSH * 4096 + (size_t)p * DEPTH * PULL, PULL};
    FUZZ_CHECK(plan_create(job->handle, push, N_PUSH, pull, (int)job->ctx->n_peers,
                           STEPAF_PLAN_STREAM, &plan) == STEPAF_OK);
    if (role == STEPAF_FFN)
        FUZZ_CHECK(stepaf_key_allocate(job->ctx) == STEPAF_OK);
    return job;
}

/* Made once, kept for ever. Some tell, others join: these make their memory anew each time. */
static void make_valid(void)
{
    if (telling[0])
        return;
    cpu_device_begin();
    for (int role = 0; role < 2; role++) {
        telling[role] = make_job(role ? STEPAF_FFN : STEPAF_ATTENTION);
        joining[role] = make_job(role ? STEPAF_FFN : STEPAF_ATTENTION);
        FUZZ_CHECK(stepaf_streams_prepare(telling[role]->ctx) == STEPAF_OK);
    }
    for (int r = 0; r < RANKS; r++) {
        stepaf_advert_pack(telling[r == FFN_RANK]->ctx, STEPAF_OK, &packs[r]);
        FUZZ_CHECK(stepaf_advert_read(packs[r].data, packs[r].bytes,
                                      r == FFN_RANK ? STEPAF_FFN : STEPAF_ATTENTION, r, NULL,
                                      &stream_advert[r]) == STEPAF_OK);
    }
    FUZZ_CHECK(stepaf_stream_adverts_check(stream_advert, RANKS, false) == STEPAF_OK);
}

static void look_at_plan(const struct stepaf_stream_advert_plan *plan, int role)
{
    uint32_t n_in = role == STEPAF_ATTENTION ? plan->n_pull : plan->n_push;
    uint32_t n_out = role == STEPAF_ATTENTION ? plan->n_push : plan->n_pull;
    struct stepaf_stream_advert_mailbox mailbox;
    uint32_t n_mailboxes = 0;

    FUZZ_CHECK(n_in && n_in <= STEPAF_MAX_TENSORS && n_out && n_out <= STEPAF_MAX_TENSORS);
    FUZZ_CHECK(plan->depth && plan->depth <= STEPAF_MAX_DEPTH);
    for (uint32_t p = 0; p < plan->n_peers; p++) {
        for (uint32_t i = 0; i < plan->n_pull; i++)
            (void)stepaf_stream_advert_pull(plan, p, i);
        for (uint32_t i = 0; i < n_out; i++)
            (void)stepaf_stream_advert_size(plan, n_out, p, i);
        for (uint32_t i = 0; i < n_in; i++) {
            (void)stepaf_stream_advert_room(plan, n_in, p, i);
            n_mailboxes += stepaf_stream_advert_mailbox(plan, n_in, p, i, &mailbox);
        }
    }
    FUZZ_CHECK(n_mailboxes <= plan->n_peers * n_in);
}

static bool lies_in(const uint8_t *at, size_t bytes, const uint8_t *base, size_t size)
{
    return base && at >= base && (size_t)(at - base) <= size && bytes <= size - (size_t)(at - base);
}

static bool is_shared(const struct stepaf_ctx *ctx, const uint8_t *at, size_t bytes)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (lies_in(at, bytes, ctx->gpu.streams->host[p].its, ctx->gpu.streams->host[p].its_bytes))
            return true;
    for (int i = 0; i < CPU_PIECES; i++) {
        const struct cpu_piece *piece = &cpu_device.pieces[i];
        if (lies_in(at, bytes, piece->base, piece->bytes))
            return true;
    }
    return false;
}

static void look_at_tensor(const struct stepaf_ctx *ctx, const struct stepaf_kernel_tensor *tensor)
{
    FUZZ_CHECK(is_shared(ctx, tensor->head, STEPAF_HEAD_BYTES));
    FUZZ_CHECK(tensor->proto < STEPAF_PROTO_COUNT);
    if (tensor->proto == STEPAF_PROTO_INLINE)
        FUZZ_CHECK(tensor->bytes <= STEPAF_HEAD_DATA);
    else if (tensor->proto == STEPAF_PROTO_LL)
        FUZZ_CHECK(
            is_shared(ctx, tensor->body, stepaf_piece_groups(tensor->bytes) * STEPAF_GROUP_BYTES));
    else if (tensor->proto == STEPAF_PROTO_CHUNKS)
        FUZZ_CHECK(is_shared(ctx, tensor->body,
                             (tensor->bytes + tensor->chunk - 1ull) / tensor->chunk *
                                 (tensor->chunk + STEPAF_CHUNK_TELLS)));
    else
        FUZZ_CHECK(is_shared(ctx, tensor->body, tensor->bytes));
}

/* Join what is told at a rank of the other role; then all is as before. */
static void join(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts)
{
    const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, 0);
    int n_pieces = cpu_device_count();

    FUZZ_CHECK(stepaf_streams_prepare(ctx) == STEPAF_OK);
    stepaf_status_t status = stepaf_streams_join(ctx, adverts);
    FUZZ_CHECK(status == STEPAF_OK || status == STEPAF_ERR_PROTOCOL ||
               status == STEPAF_ERR_NO_TRANSPORT);
    for (uint32_t k = 0; !status && k < DEPTH * plan->stream->launches.n_send; k++)
        for (uint32_t i = 0; i < plan->stream->launches.send[k].args.n_tensors; i++)
            look_at_tensor(ctx, &plan->stream->launches.send[k].args.tensors[i]);
    ctx->gpu.streams->joined = false;
    stepaf_streams_undo(ctx);
    FUZZ_CHECK(cpu_device_count() == n_pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stepaf_advert all[RANKS];
    struct stepaf_stream_advert read;
    size_t blob_bytes;

    if (!bytes)
        return 0;
    make_valid();
    memcpy(all, stream_advert, sizeof(all));
    int role = data[0] % 2, rank = ranks[role];
    const struct stepaf_unpack *valid = &stream_advert[rank].streams;
    uint8_t *blob = data[0] > 127 ? edit_copy(data + 1, bytes - 1, NULL, 0, &blob_bytes)
                                  : edit_copy(valid->at, (size_t)(valid->end - valid->at), data + 1,
                                              bytes - 1, &blob_bytes);
    all[rank].streams = stepaf_unpack_from(blob, blob_bytes);
    stepaf_status_t status =
        stepaf_stream_advert_read(all[rank].streams, all[rank].role, rank, &read);
    FUZZ_CHECK(status == STEPAF_OK || status == STEPAF_ERR_PROTOCOL);
    if (!status) {
        for (uint32_t i = 0; i < read.n_plans; i++)
            look_at_plan(&read.plans[i], all[rank].role);
        stepaf_stream_advert_free(&read);
    }
    stepaf_status_t outcome = stepaf_stream_adverts_check(all, RANKS, false);
    FUZZ_CHECK(!status || outcome == STEPAF_ERR_PROTOCOL);
    FUZZ_CHECK(outcome == STEPAF_OK || outcome == STEPAF_ERR_PROTOCOL ||
               outcome == STEPAF_ERR_MISMATCH);
    FUZZ_CHECK(stepaf_stream_adverts_check(all, RANKS, true) == outcome);
    if (!outcome)
        join(joining[!role]->ctx, all);
    free(blob);
    return 0;
}
