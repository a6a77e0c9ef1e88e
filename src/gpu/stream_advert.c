/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/stream_advert.h"
#include "core/key.h"
#include "core/plan.h"

#include "gpu/proxy.h"

#include <stdlib.h>
#include <string.h>

enum { MAILBOX_BYTES = 8 + 3 * 4 + STEPAF_GPU_IPC + 4 * 8, HOST_BYTES = 4 + 4 + 8 };

/* ---- sending ---- */

static void pack_export(const struct stepaf_gpu_export *exported, struct stepaf_pack *pack)
{
    stepaf_pack_bytes(pack, exported->handle, sizeof(exported->handle));
    stepaf_pack_u64(pack, exported->offset);
    stepaf_pack_u64(pack, exported->bytes);
    stepaf_pack_u64(pack, exported->process);
    stepaf_pack_u64(pack, exported->address);
}

/* Add what the memory is for; the driver's message does not say. */
static stepaf_status_t not_shared(stepaf_status_t status, const char *what, uint64_t id)
{
    return stepaf_error_set(status, STEPAF_PHASE_COMMIT, "%s %llu: %.250s", what,
                            (unsigned long long)id, stepaf_last_error()->text);
}

static stepaf_status_t pack_mailbox(struct stepaf_ctx *ctx, const struct stepaf_mailbox *mailbox,
                                    uint64_t key, struct stepaf_pack *pack)
{
    struct stepaf_gpu_export place = {0};
    stepaf_status_t status = STEPAF_OK;

    if (mailbox->proto == STEPAF_PROTO_ZCOPY)
        status = stepaf_gpu_export(ctx->gpu.device, mailbox->data, &place);
    if (status)
        return not_shared(status, "receive buffer of key", key);
    stepaf_pack_u64(pack, mailbox->offset);
    stepaf_pack_u32(pack, mailbox->stride);
    stepaf_pack_u32(pack, mailbox->pitch);
    stepaf_pack_u32(pack, mailbox->proto);
    pack_export(&place, pack);
    return STEPAF_OK;
}

/* Peers on other nodes are many, and every rank reads the advert: it has only sizes for these
 * peers. */
static stepaf_status_t pack_plan(struct stepaf_ctx *ctx, const struct stepaf_stream *stream,
                                 uint32_t n_direct, struct stepaf_pack *pack)
{
    const struct stepaf_plan_obj *plan = stream->plan;
    stepaf_status_t status = STEPAF_OK;

    stepaf_pack_u32(pack, plan->index);
    stepaf_pack_u32(pack, plan->depth);
    stepaf_pack_u32(pack, plan->n_push);
    stepaf_pack_u32(pack, plan->n_pull);
    stepaf_pack_u32(pack, ctx->n_peers);
    for (uint32_t i = 0; i < plan->n_push; i++)
        stepaf_pack_u64(pack, plan->push[i].key->id);
    for (uint32_t i = 0; i < ctx->n_peers * plan->n_pull; i++)
        stepaf_pack_u64(pack, plan->pull[i].key->id);
    for (uint32_t i = 0; i < ctx->n_peers * stream->n_out; i++)
        stepaf_pack_u32(pack, stepaf_is_attention(ctx) ? plan->push[i % stream->n_out].bytes
                                                       : plan->pull[i].bytes);
    for (uint32_t i = 0; i < ctx->n_peers * stream->n_in; i++)
        stepaf_pack_u32(pack, stream->mailboxes[i].bytes);
    stepaf_pack_u32(pack, n_direct);
    for (uint32_t p = 0; p < ctx->n_peers && !status; p++) {
        if (stepaf_peer_proxied(ctx, p))
            continue;
        stepaf_pack_u32(pack, p);
        for (uint32_t i = 0; i < stream->n_in && !status; i++) {
            uint32_t at = p * stream->n_in + i;
            const struct stepaf_key *key =
                stepaf_is_attention(ctx) ? plan->pull[at].key : plan->push[i].key;
            status = pack_mailbox(ctx, &stream->mailboxes[at], key->id, pack);
        }
    }
    return status;
}

static void pack_host(const struct stepaf_ctx *ctx, uint32_t n_host, struct stepaf_pack *pack)
{
    stepaf_pack_u32(pack, n_host);
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        const struct stepaf_host_mailboxes *host = &ctx->gpu.streams->host[p];
        if (!host->bytes)
            continue;
        stepaf_pack_u32(pack, p);
        stepaf_pack_u32(pack, (uint32_t)host->mem.fd);
        stepaf_pack_u64(pack, host->bytes);
    }
}

stepaf_status_t stepaf_streams_advertise(struct stepaf_ctx *ctx)
{
    struct stepaf_pack *own = &ctx->gpu.streams->stream_advert;
    struct stepaf_gpu_export mailboxes = {0};
    struct stepaf_stream *stream = NULL;
    stepaf_status_t status = STEPAF_OK;
    uint32_t n = 0, n_direct = 0, n_host = 0;

    while ((stream = stepaf_stream_after(ctx, stream)))
        n++;
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        n_direct += !stepaf_peer_proxied(ctx, p);
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        n_host += ctx->gpu.streams->host[p].bytes > 0;
    stepaf_pack_u32(own, n);
    if (n_direct > n_host)
        status = stepaf_gpu_export(ctx->gpu.device, ctx->gpu.streams->mailboxes, &mailboxes);
    if (status)
        return not_shared(status, "mailboxes of stream plans: bytes",
                          ctx->gpu.streams->mailbox_bytes);
    pack_export(&mailboxes, own);
    stepaf_pack_u64(own, ctx->gpu.streams->mailbox_bytes);
    stepaf_pack_u32(own, (uint32_t)ctx->env.cuda_engine);
    pack_host(ctx, n_host, own);
    while (!status && (stream = stepaf_stream_after(ctx, stream)))
        status = pack_plan(ctx, stream, n_direct, own);
    if (!status && own->failed)
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    return status;
}

void stepaf_streams_pack(const struct stepaf_ctx *ctx, struct stepaf_pack *pack)
{
    const struct stepaf_pack *stream_advert =
        ctx->gpu.streams ? &ctx->gpu.streams->stream_advert : NULL;

    if (!stream_advert || !stream_advert->bytes) { /* no plan */
        stepaf_pack_u64(pack, sizeof(uint32_t));
        stepaf_pack_u32(pack, 0);
        return;
    }
    stepaf_pack_u64(pack, stream_advert->bytes);
    stepaf_pack_bytes(pack, stream_advert->data, stream_advert->bytes);
}

/* ---- reading ---- */

static struct stepaf_gpu_export unpack_export(struct stepaf_unpack *unpack)
{
    struct stepaf_gpu_export exported = {0};
    const void *handle = stepaf_unpack_bytes(unpack, sizeof(exported.handle));

    if (handle)
        memcpy(exported.handle, handle, sizeof(exported.handle));
    exported.offset = stepaf_unpack_u64(unpack);
    exported.bytes = stepaf_unpack_u64(unpack);
    exported.process = stepaf_unpack_u64(unpack);
    exported.address = stepaf_unpack_u64(unpack);
    return exported;
}

static bool read_plan(struct stepaf_unpack *unpack, int role,
                      struct stepaf_stream_advert_plan *plan)
{
    plan->number = stepaf_unpack_u32(unpack);
    plan->depth = stepaf_unpack_u32(unpack);
    plan->n_push = stepaf_unpack_u32(unpack);
    plan->n_pull = stepaf_unpack_u32(unpack);
    plan->n_peers = stepaf_unpack_u32(unpack);
    if (unpack->failed || !plan->depth || plan->depth > STEPAF_MAX_DEPTH || !plan->n_push ||
        plan->n_push > STEPAF_MAX_TENSORS || !plan->n_pull || plan->n_pull > STEPAF_MAX_TENSORS)
        return false;
    for (uint32_t i = 0; i < plan->n_push; i++)
        plan->push[i] = stepaf_unpack_u64(unpack);
    plan->pulls = *unpack;
    (void)stepaf_unpack_bytes(unpack, (size_t)plan->n_peers * plan->n_pull * 8);
    size_t n_out = role == STEPAF_ATTENTION ? plan->n_push : plan->n_pull;
    plan->sizes = *unpack;
    (void)stepaf_unpack_bytes(unpack, plan->n_peers * n_out * 4);
    plan->rooms = *unpack;
    size_t n_in = role == STEPAF_ATTENTION ? plan->n_pull : plan->n_push;
    (void)stepaf_unpack_bytes(unpack, plan->n_peers * n_in * 4);
    plan->n_direct = stepaf_unpack_u32(unpack);
    plan->mailboxes = *unpack;
    (void)stepaf_unpack_bytes(unpack, plan->n_direct * (4 + n_in * MAILBOX_BYTES));
    return !unpack->failed;
}

stepaf_status_t stepaf_stream_advert_read(struct stepaf_unpack unpack, int role, int world_rank,
                                          struct stepaf_stream_advert *told_p)
{
    struct stepaf_stream_advert stream_advert = {.n_plans = stepaf_unpack_u32(&unpack)};
    bool ok = !unpack.failed && stream_advert.n_plans <= STEPAF_MAX_PLANS;

    if (ok && stream_advert.n_plans) {
        stream_advert.mailboxes = unpack_export(&unpack);
        stream_advert.mailbox_bytes = stepaf_unpack_u64(&unpack);
        stream_advert.engine = stepaf_unpack_u32(&unpack);
        stream_advert.n_host = stepaf_unpack_u32(&unpack);
        stream_advert.host = unpack;
        (void)stepaf_unpack_bytes(&unpack, (size_t)stream_advert.n_host * HOST_BYTES);
        stream_advert.plans = calloc(stream_advert.n_plans, sizeof(stream_advert.plans[0]));
        if (!stream_advert.plans)
            return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    }
    ok = ok && stream_advert.engine <= STEPAF_ENV_CUDA_ENGINE_ce;
    for (uint32_t i = 0; ok && i < stream_advert.n_plans; i++)
        ok = read_plan(&unpack, role, &stream_advert.plans[i]);
    if (!ok || unpack.at != unpack.end) {
        free(stream_advert.plans);
        return stepaf_error_set_peer(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                     (struct stepaf_who){role, -1, world_rank},
                                     "the stream advert of rank %d is malformed", world_rank);
    }
    *told_p = stream_advert;
    return STEPAF_OK;
}

void stepaf_stream_advert_free(struct stepaf_stream_advert *stream_advert)
{
    free(stream_advert->plans);
}

uint64_t stepaf_stream_advert_pull(const struct stepaf_stream_advert_plan *plan, uint32_t peer,
                                   uint32_t i)
{
    struct stepaf_unpack unpack = plan->pulls;

    (void)stepaf_unpack_bytes(&unpack, ((size_t)peer * plan->n_pull + i) * 8);
    return stepaf_unpack_u64(&unpack);
}

uint32_t stepaf_stream_advert_size(const struct stepaf_stream_advert_plan *plan, uint32_t n_out,
                                   uint32_t peer, uint32_t i)
{
    struct stepaf_unpack unpack = plan->sizes;

    (void)stepaf_unpack_bytes(&unpack, ((size_t)peer * n_out + i) * 4);
    return stepaf_unpack_u32(&unpack);
}

uint32_t stepaf_stream_advert_room(const struct stepaf_stream_advert_plan *plan, uint32_t n_in,
                                   uint32_t peer, uint32_t i)
{
    struct stepaf_unpack unpack = plan->rooms;

    (void)stepaf_unpack_bytes(&unpack, ((size_t)peer * n_in + i) * 4);
    return stepaf_unpack_u32(&unpack);
}

bool stepaf_stream_advert_mailbox(const struct stepaf_stream_advert_plan *plan, uint32_t n_in,
                                  uint32_t peer, uint32_t i,
                                  struct stepaf_stream_advert_mailbox *mailbox_p)
{
    struct stepaf_unpack unpack = plan->mailboxes;
    uint32_t n = 0;

    for (; n < plan->n_direct && stepaf_unpack_u32(&unpack) != peer; n++)
        (void)stepaf_unpack_bytes(&unpack, (size_t)n_in * MAILBOX_BYTES);
    if (n == plan->n_direct)
        return false;
    (void)stepaf_unpack_bytes(&unpack, (size_t)i * MAILBOX_BYTES);
    mailbox_p->offset = stepaf_unpack_u64(&unpack);
    mailbox_p->stride = stepaf_unpack_u32(&unpack);
    mailbox_p->pitch = stepaf_unpack_u32(&unpack);
    mailbox_p->proto = stepaf_unpack_u32(&unpack);
    mailbox_p->place = unpack_export(&unpack);
    return true;
}

bool stepaf_stream_advert_host(const struct stepaf_stream_advert *stream_advert, uint32_t peer,
                               int *fd_p, uint64_t *bytes_p)
{
    struct stepaf_unpack unpack = stream_advert->host;

    for (uint32_t n = 0; n < stream_advert->n_host; n++) {
        uint32_t its = stepaf_unpack_u32(&unpack);
        *fd_p = (int)stepaf_unpack_u32(&unpack);
        *bytes_p = stepaf_unpack_u64(&unpack);
        if (its == peer)
            return true;
    }
    return false;
}

/* Return whether two plans have the same keys, each for one of its peers. */
static bool is_same(const struct stepaf_stream_advert_plan *one, uint32_t peer,
                    const struct stepaf_stream_advert_plan *other, uint32_t its_peer)
{
    bool same = one->depth == other->depth && one->n_push == other->n_push &&
                one->n_pull == other->n_pull && peer < one->n_peers && its_peer < other->n_peers &&
                !memcmp(one->push, other->push, one->n_push * sizeof(one->push[0]));

    for (uint32_t k = 0; same && k < one->n_pull; k++)
        same = stepaf_stream_advert_pull(one, peer, k) ==
               stepaf_stream_advert_pull(other, its_peer, k);
    return same;
}

const struct stepaf_stream_advert_plan *stepaf_stream_advert_match(
    const struct stepaf_stream_advert *stream_advert, uint32_t slot,
    const struct stepaf_stream_advert *own, const struct stepaf_stream_advert_plan *plan,
    uint32_t peer)
{
    uint32_t before = 0;

    for (const struct stepaf_stream_advert_plan *one = own->plans; one < plan; one++)
        before += is_same(one, peer, plan, peer);
    for (uint32_t i = 0; i < stream_advert->n_plans; i++)
        if (is_same(&stream_advert->plans[i], slot, plan, peer) && before-- == 0)
            return &stream_advert->plans[i];
    return NULL;
}
