/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/stream_tell.h"

#include "engine/relay.h"

#include <stdlib.h>
#include <string.h>

enum { INLET_BYTES = 8 + 4 * 4 + STEPAF_GPU_IPC + 4 * 8 };

/* ---- telling ---- */

static void pack_export(const struct stepaf_gpu_export *exported, struct stepaf_pack *pack)
{
    stepaf_pack_bytes(pack, exported->handle, sizeof(exported->handle));
    stepaf_pack_u64(pack, exported->offset);
    stepaf_pack_u64(pack, exported->bytes);
    stepaf_pack_u64(pack, exported->process);
    stepaf_pack_u64(pack, exported->address);
}

static void pack_inlet(struct stepaf_ctx *ctx, const struct stepaf_inlet *inlet,
                       struct stepaf_pack *pack)
{
    struct stepaf_gpu_export place = {0};

    stepaf_pack_u64(pack, inlet->offset);
    stepaf_pack_u32(pack, inlet->stride);
    stepaf_pack_u32(pack, inlet->pitch);
    stepaf_pack_u32(pack, inlet->bytes);
    stepaf_pack_u32(pack, inlet->way);
    if (inlet->way == STEPAF_WAY_PLACE && stepaf_gpu_export(ctx->gpu, inlet->data, &place))
        pack->failed = true;
    pack_export(&place, pack);
}

static void pack_plan(struct stepaf_ctx *ctx, const struct stepaf_stream *stream,
                      struct stepaf_pack *pack)
{
    const struct stepaf_plan_obj *plan = stream->plan;

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
        pack_inlet(ctx, &stream->inlets[i], pack);
}

void stepaf_streams_pack(struct stepaf_ctx *ctx, struct stepaf_pack *pack)
{
    struct stepaf_gpu_export inlets = {0};
    struct stepaf_pack own = {0};
    uint32_t n = 0, n_direct = 0;

    for (uint32_t i = 0; i < ctx->plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->plans, i);
        n += plan && plan->stream;
    }
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        n_direct += !stepaf_peer_relayed(ctx, p);
    stepaf_pack_u32(&own, n);
    if (n) {
        if (n_direct && stepaf_gpu_export(ctx->gpu, ctx->streams->inlets, &inlets))
            own.failed = true;
        else
            pack_export(&inlets, &own);
        stepaf_pack_u64(&own, ctx->streams->inlet_bytes);
        stepaf_pack_u32(&own, (uint32_t)ctx->env.cuda_engine);
    }
    for (uint32_t i = 0; n && i < ctx->plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->plans, i);
        if (plan && plan->stream)
            pack_plan(ctx, plan->stream, &own);
    }
    stepaf_pack_u64(pack, own.bytes);
    stepaf_pack_bytes(pack, own.data, own.bytes);
    pack->failed = pack->failed || own.failed;
    free(own.data);
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

static bool read_plan(struct stepaf_unpack *unpack, int role, struct stepaf_told_plan *plan)
{
    plan->number = stepaf_unpack_u32(unpack);
    plan->depth = stepaf_unpack_u32(unpack);
    plan->n_push = stepaf_unpack_u32(unpack);
    plan->n_pull = stepaf_unpack_u32(unpack);
    plan->n_peers = stepaf_unpack_u32(unpack);
    if (unpack->failed || !plan->depth || plan->depth > STEPAF_MAX_DEPTH ||
        plan->n_push > STEPAF_MAX_TENSORS || plan->n_pull > STEPAF_MAX_TENSORS ||
        plan->n_peers > STEPAF_FLOW_LANES)
        return false;
    for (uint32_t i = 0; i < plan->n_push; i++)
        plan->push[i] = stepaf_unpack_u64(unpack);
    plan->pulls = *unpack;
    (void)stepaf_unpack_bytes(unpack, (size_t)plan->n_peers * plan->n_pull * 8);
    size_t n_out = role == STEPAF_ATTENTION ? plan->n_push : plan->n_pull;
    plan->sizes = *unpack;
    (void)stepaf_unpack_bytes(unpack, plan->n_peers * n_out * 4);
    plan->inlets = *unpack;
    size_t n_in = role == STEPAF_ATTENTION ? plan->n_pull : plan->n_push;
    (void)stepaf_unpack_bytes(unpack, plan->n_peers * n_in * INLET_BYTES);
    return !unpack->failed;
}

stepaf_status_t stepaf_told_read(struct stepaf_unpack unpack, int role, int world_rank,
                                 struct stepaf_told *told_p)
{
    struct stepaf_told told = {.n_plans = stepaf_unpack_u32(&unpack)};
    bool ok = !unpack.failed && told.n_plans <= STEPAF_MAX_PLANS;

    if (ok && told.n_plans) {
        told.inlets = unpack_export(&unpack);
        told.inlet_bytes = stepaf_unpack_u64(&unpack);
        told.engine = stepaf_unpack_u32(&unpack);
        told.plans = calloc(told.n_plans, sizeof(told.plans[0]));
        if (!told.plans)
            return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_COMMIT, "out of memory");
    }
    ok = ok && told.engine <= STEPAF_ENV_ENGINE_CE;
    for (uint32_t i = 0; ok && i < told.n_plans; i++)
        ok = read_plan(&unpack, role, &told.plans[i]);
    if (!ok || unpack.at != unpack.end) {
        free(told.plans);
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "what rank %d tells of its stream plans is malformed", world_rank);
    }
    *told_p = told;
    return STEPAF_OK;
}

void stepaf_told_free(struct stepaf_told *told)
{
    free(told->plans);
}

uint64_t stepaf_told_pull(const struct stepaf_told_plan *plan, uint32_t peer, uint32_t i)
{
    struct stepaf_unpack unpack = plan->pulls;

    (void)stepaf_unpack_bytes(&unpack, ((size_t)peer * plan->n_pull + i) * 8);
    return stepaf_unpack_u64(&unpack);
}

uint32_t stepaf_told_size(const struct stepaf_told_plan *plan, uint32_t n_out, uint32_t peer,
                          uint32_t i)
{
    struct stepaf_unpack unpack = plan->sizes;

    (void)stepaf_unpack_bytes(&unpack, ((size_t)peer * n_out + i) * 4);
    return stepaf_unpack_u32(&unpack);
}

struct stepaf_told_inlet stepaf_told_inlet(const struct stepaf_told_plan *plan, uint32_t n_in,
                                           uint32_t peer, uint32_t i)
{
    struct stepaf_unpack unpack = plan->inlets;
    struct stepaf_told_inlet inlet;

    (void)stepaf_unpack_bytes(&unpack, ((size_t)peer * n_in + i) * INLET_BYTES);
    inlet.offset = stepaf_unpack_u64(&unpack);
    inlet.stride = stepaf_unpack_u32(&unpack);
    inlet.pitch = stepaf_unpack_u32(&unpack);
    inlet.bytes = stepaf_unpack_u32(&unpack);
    inlet.way = stepaf_unpack_u32(&unpack);
    inlet.place = unpack_export(&unpack);
    return inlet;
}

const struct stepaf_told_plan *stepaf_told_match(const struct stepaf_told *told, uint32_t slot,
                                                 const struct stepaf_told_plan *plan, uint32_t peer)
{
    for (uint32_t i = 0; i < told->n_plans; i++) {
        const struct stepaf_told_plan *its = &told->plans[i];
        bool same = its->depth == plan->depth && its->n_push == plan->n_push &&
                    its->n_pull == plan->n_pull && slot < its->n_peers && peer < plan->n_peers &&
                    !memcmp(its->push, plan->push, plan->n_push * sizeof(plan->push[0]));
        for (uint32_t k = 0; same && k < plan->n_pull; k++)
            same = stepaf_told_pull(its, slot, k) == stepaf_told_pull(plan, peer, k);
        if (same)
            return its;
    }
    return NULL;
}

/* ---- the verdict ---- */

/* The index of one rank among the peers of ranks of the other role: as mesh.h counts. */
static uint32_t index_in_lane(const struct stepaf_declaration *declarations, int n, int rank)
{
    uint32_t index = 0;

    for (int r = 0; r < rank && r < n; r++)
        index += declarations[r].role == declarations[rank].role &&
                 declarations[r].lane == declarations[rank].lane;
    return index;
}

/* Whether all that @a plan of rank @a one sends to its peer @a peer has room in @a its plan there. */
static stepaf_status_t judge_sizes(const struct stepaf_declaration *one,
                                   const struct stepaf_told_plan *plan, uint32_t peer,
                                   const struct stepaf_declaration *other,
                                   const struct stepaf_told_plan *its, uint32_t slot)
{
    bool pushes = one->role == STEPAF_ATTENTION;
    uint32_t n = pushes ? plan->n_push : plan->n_pull;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t bytes = stepaf_told_size(plan, n, peer, i);
        uint32_t room = stepaf_told_inlet(its, n, slot, i).bytes;
        if (bytes > room)
            return stepaf_error_set(
                STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
                "key %llu: stream plan %u of world rank %d sends %u bytes, but that of world rank "
                "%d has room for %u",
                (unsigned long long)(pushes ? plan->push[i] : stepaf_told_pull(plan, peer, i)),
                plan->number, one->world_rank, bytes, other->world_rank, room);
    }
    return STEPAF_OK;
}

/* Whether all keys of a plan are kept in host memory at rank @a other: then it may have an ordinary
 * plan, of which nothing is told before the commit is over. */
static bool is_for_host(const struct stepaf_told_plan *plan, uint32_t peer,
                        const struct stepaf_declaration *other)
{
    const struct stepaf_declared_key *key;
    bool is = true;

    for (uint32_t i = 0; i < plan->n_push + plan->n_pull; i++) {
        key = stepaf_declaration_key(other, i < plan->n_push
                                                ? plan->push[i]
                                                : stepaf_told_pull(plan, peer, i - plan->n_push));
        is = is && (!key || key->mem_kind == STEPAF_MEM_HOST);
    }
    return is;
}

/* Whether every plan of rank @a one has its counterpart at rank @a other. */
static stepaf_status_t judge_pair(const struct stepaf_declaration *declarations, int n, int one,
                                  const struct stepaf_told *told, int other,
                                  const struct stepaf_told *its)
{
    uint32_t slot = index_in_lane(declarations, n, one);
    uint32_t peer = index_in_lane(declarations, n, other);

    for (uint32_t i = 0; i < told->n_plans; i++) {
        const struct stepaf_told_plan *match = stepaf_told_match(its, slot, &told->plans[i], peer);
        if (!match && stepaf_declared_relayed(&declarations[one], &declarations[other]) &&
            is_for_host(&told->plans[i], peer, &declarations[other]))
            continue;
        if (!match)
            return stepaf_error_set(
                STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
                "world rank %d has a stream plan (%u) that pushes %u and pulls %u keys, the first "
                "%llu, but world rank %d has none of the same keys and depth",
                one, told->plans[i].number, told->plans[i].n_push, told->plans[i].n_pull,
                (unsigned long long)(told->plans[i].n_push
                                         ? told->plans[i].push[0]
                                         : stepaf_told_pull(&told->plans[i], peer, 0)),
                other);
        stepaf_status_t status = judge_sizes(&declarations[one], &told->plans[i], peer,
                                             &declarations[other], match, slot);
        if (status)
            return status;
    }
    return STEPAF_OK;
}

static bool plan_names(const struct stepaf_told_plan *plan, uint64_t key)
{
    for (uint32_t k = 0; k < plan->n_push; k++)
        if (key == plan->push[k])
            return true;
    for (uint32_t p = 0; p < plan->n_peers; p++)
        for (uint32_t k = 0; k < plan->n_pull; k++)
            if (key == stepaf_told_pull(plan, p, k))
                return true;
    return false;
}

static bool names(const struct stepaf_told *told, uint64_t key)
{
    for (uint32_t i = 0; i < told->n_plans; i++)
        if (plan_names(&told->plans[i], key))
            return true;
    return false;
}

/* A key may be of another kind at each end where stream plans carry it from kind to kind, both ends'
 * own or one that is relayed, and where none names it: links write where the receiver says. */
static stepaf_status_t judge_kinds(const struct stepaf_declaration *one,
                                   const struct stepaf_told *told,
                                   const struct stepaf_declaration *other,
                                   const struct stepaf_told *its)
{
    for (uint32_t k = 0; k < one->n_keys; k++) {
        const struct stepaf_declared_key *a = &one->keys[k];
        const struct stepaf_declared_key *b = stepaf_declaration_key(other, a->id);
        if (!b || a->mem_kind == b->mem_kind)
            continue;
        bool one_has = names(told, a->id), other_has = names(its, a->id);
        bool relayed = stepaf_declared_relayed(one, other);
        if (one_has == other_has || (relayed && (one_has || other_has)))
            continue;
        return stepaf_error_set(
            STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
            "key %llu: world rank %d declares memory of kind %u, world rank %d declares %u: that "
            "takes stream plans at both, or at the one with kind 1 and STEPAF_CUDA_RELAY=always at "
            "either",
            (unsigned long long)a->id, one->world_rank, a->mem_kind, other->world_rank,
            b->mem_kind);
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_told_judge(const struct stepaf_declaration *declarations, int n,
                                  bool kinds_differ)
{
    struct stepaf_told *told = calloc((size_t)n, sizeof(*told));
    stepaf_status_t status = STEPAF_OK;
    bool any = false;

    if (!told)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_COMMIT, "out of memory");
    for (int r = 0; r < n && !status; r++) {
        status = stepaf_told_read(declarations[r].streams, declarations[r].role,
                                  declarations[r].world_rank, &told[r]);
        any = any || told[r].n_plans;
    }
    for (int a = 0; (any || kinds_differ) && a < n; a++)
        for (int b = 0; b < n && !status; b++) {
            if (declarations[a].role == declarations[b].role ||
                declarations[a].lane != declarations[b].lane)
                continue;
            if (kinds_differ)
                status = judge_kinds(&declarations[a], &told[a], &declarations[b], &told[b]);
            if (!status)
                status = judge_pair(declarations, n, a, &told[a], b, &told[b]);
        }
    for (int r = 0; r < n; r++)
        stepaf_told_free(&told[r]);
    free(told);
    return status;
}
