/* SPDX-License-Identifier: Apache-2.0 */
/* Joining the job: one exchange tells every rank the roles and places of all others, and checks
 * that all have the same settings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "boot/boot_return.h"
#include "boot/member_net_return.h"
#include "core/batch.h"
#include "core/clock_keep.h"
#include "core/ctx.h"
#include "core/deliver.h"
#include "core/mesh.h"
#include "core/metrics.h"
#include "core/msg_log.h"
#include "core/op.h"
#include "core/region.h"
#include "core/trace.h"
#include "core/trace_file.h"
#include "core/trace_signal.h"
#include "device/gpu.h"
#include "verdict/verdict.h"
#include "wireup/hello.h"
#include "wireup/init.h"
#include "wireup/init_members.h"
#include "wireup/returns.h"
#include "wireup/roles.h"

enum { FEW = 256 };

/* What this rank brings to the exchange: its contact, role and split. */
struct own_view {
    struct stepaf_member_contact contact;
    stepaf_role_t said;
    struct stepaf_split split;
};

static stepaf_status_t check_params(const stepaf_params_t *params, struct stepaf_ctx *const *ctx_p)
{
    const char *what = NULL;

    if (!ctx_p)
        what = "ctx_p is NULL";
    else if (params->field_mask & ~(uint64_t)STEPAF_PARAM_ALL)
        what = "unknown bits in the parameters' field_mask";
    else if ((params->field_mask & STEPAF_PARAM_ROLE) && (unsigned)params->role > STEPAF_ROLE_AUTO)
        what = "unknown role";
    else if ((params->field_mask & STEPAF_PARAM_PROGRESS) &&
             (unsigned)params->progress > STEPAF_PROGRESS_AUTO)
        what = "unknown progress mode";
    else if ((params->field_mask & STEPAF_PARAM_THREADS) &&
             (unsigned)params->threads > STEPAF_THREADS_MULTIPLE)
        what = "unknown threads mode";
    return what ? stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_INIT, "%s", what) : STEPAF_OK;
}

/* Determine the split in force. The parameters' split replaces STEPAF_SPLIT, also among the
 * settings that must agree. */
static stepaf_status_t view_roles(struct stepaf_ctx *ctx, const stepaf_params_t *params,
                                  struct own_view *view)
{
    bool given = (params->field_mask & STEPAF_PARAM_SPLIT) && params->split && params->split[0];

    if (given) {
        char *split = strdup(params->split);
        if (!split)
            return stepaf_error_no_memory(STEPAF_PHASE_INIT);
        free(ctx->env.split);
        ctx->env.split = split;
    }
    view->said = stepaf_role_said(params, &ctx->env);
    return stepaf_split_parse(ctx->env.split, ctx->job.n_started, &view->split);
}

/* Do everything that this rank can do alone. */
static stepaf_status_t prepare_init(struct stepaf_ctx *ctx, const stepaf_params_t *params,
                                    struct own_view *view)
{
    stepaf_status_t status;

    stepaf_log_set_rank(ctx->job.boot.rank);
    stepaf_clock_calibrate(&ctx->clock.own);
    stepaf_clock_begin(ctx);
    ctx->clock.told_from = (uint64_t)((double)ctx->env.times_us * ctx->clock.own.ticks_per_us);
    ctx->polling.checked = stepaf_ticks();
    if ((status = stepaf_topo_probe(NULL, &ctx->job.topo)))
        return status;
    if ((status = stepaf_transport_check_names(&ctx->env)))
        return status;
    if ((status = stepaf_topo_check_cores(ctx->env.progress_cores)))
        return stepaf_error_set(status, STEPAF_PHASE_INIT, "STEPAF_PROGRESS_CORES: %s",
                                stepaf_last_error()->text);
    if (ctx->job.boot.size > 1)
        ctx->job.members.net =
            stepaf_member_net_open(&ctx->env, ctx->job.boot.rank, ctx->job.boot.size,
                                   &view->contact, ctx->job.members.mute);
    if ((status = stepaf_init_let_ask(ctx)))
        return status;
    ctx->threads.progress_wanted = ctx->env.progress == 1;
    if ((params->field_mask & STEPAF_PARAM_PROGRESS) && params->progress != STEPAF_PROGRESS_AUTO)
        ctx->threads.progress_wanted = params->progress == STEPAF_PROGRESS_THREAD;
    ctx->threads.many =
        ctx->threads.progress_wanted ||
        ((params->field_mask & STEPAF_PARAM_THREADS) && params->threads == STEPAF_THREADS_MULTIPLE);
    ctx->lock.used = ctx->threads.many;
    if (ctx->env.trace == STEPAF_ENV_TRACE_on &&
        !stepaf_trace_open(&ctx->trace, (uint32_t)ctx->env.trace_records))
        return stepaf_error_no_memory(STEPAF_PHASE_INIT);
    if ((status = stepaf_trace_file_check(ctx)))
        return status;
    stepaf_trace_signal_begin(ctx);
    return view_roles(ctx, params, view);
}

/* Allocate the tables for the maximum number of peers: after the exchange, a lack of memory could
 * no longer be reported to the others. */
static stepaf_status_t make_tables(struct stepaf_ctx *ctx)
{
    size_t size = (size_t)ctx->job.boot.size;
    bool good;

    ctx->job.ranks = calloc(size, sizeof(*ctx->job.ranks));
    ctx->peers = calloc(size, sizeof(*ctx->peers));
    ctx->job.members.is = malloc(size);
    ctx->job.members.present = calloc(size, 1);
    ctx->job.members.can_return = calloc(size, 1);
    ctx->job.members.returned = calloc(size, 1);
    good = ctx->job.ranks && ctx->peers && ctx->job.members.is && ctx->job.members.present &&
           ctx->job.members.can_return && ctx->job.members.returned;
    if (good) {
        memset(ctx->job.members.is, 0, size);
        memset(ctx->job.members.is, 1, (size_t)ctx->job.n_started);
    }
    for (int g = 0; g < 3; g++) {
        ctx->job.groups[g] = calloc(size, sizeof(int));
        good = good && ctx->job.groups[g];
    }
    return good ? STEPAF_OK : stepaf_error_no_memory(STEPAF_PHASE_INIT);
}

/* Fill the tables of ranks and groups. */
static stepaf_status_t build_groups(struct stepaf_ctx *ctx, const struct stepaf_hello *hellos,
                                    const uint8_t *roles)
{
    int size = ctx->job.boot.size;

    for (int g = 0; g < 3; g++)
        ctx->job.rank[g] = -1;
    ctx->clock.one_node = true;
    for (int r = 0; r < size; r++) {
        int group = roles[r] == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;
        ctx->job.ranks[r] =
            (struct stepaf_rank){roles[r], hellos[r].proxies, (uint32_t)ctx->job.group_size[group],
                                 hellos[r].pid, hellos[r].node_id};
        if (r == ctx->job.boot.rank)
            ctx->job.rank[group] = ctx->job.group_size[group];
        ctx->job.groups[group][ctx->job.group_size[group]++] = r;
        ctx->job.groups[STEPAF_GROUP_WORLD][ctx->job.group_size[STEPAF_GROUP_WORLD]++] = r;
        ctx->clock.one_node =
            ctx->clock.one_node && (hellos[r].is_vacant || hellos[r].node_id == hellos[0].node_id);
    }
    ctx->job.rank[STEPAF_GROUP_WORLD] = ctx->job.boot.rank;
    ctx->role = (stepaf_role_t)roles[ctx->job.boot.rank];
    ctx->up.deliver_imm =
        stepaf_is_attention(ctx) ? stepaf_op_deliver_imm : stepaf_batch_deliver_imm;
    stepaf_msg_log_begin(ctx);
    ctx->polling.oversubscribed = ctx->env.backoff != STEPAF_ENV_BACKOFF_spin &&
                                  stepaf_hellos_sharing(hellos, size, ctx->job.boot.rank) *
                                          (ctx->threads.progress_wanted ? 2 : 1) >
                                      ctx->job.topo.cores_usable;
    return STEPAF_OK;
}

static void introduce(const struct stepaf_ctx *ctx, const struct own_view *view,
                      stepaf_status_t status, struct stepaf_pack *pack)
{
    struct stepaf_hello hello = {
        .status = status,
        .said = view->said,
        .app_number = ctx->job.boot.app_number,
        .map_digest = stepaf_split_map_digest(&view->split, ctx->job.n_started),
        .pid = (uint32_t)getpid(),
        .node_id = ctx->job.topo.node_id,
        .contact = view->contact,
        .proxies = ctx->env.cuda_proxy == STEPAF_ENV_CUDA_PROXY_always || !stepaf_gpu_likely(),
        .has_secret = !status && (*ctx->env.secret || *ctx->env.secret_file),
    };

    snprintf(hello.text, sizeof(hello.text), "%s", status ? stepaf_last_error()->text : "");
    snprintf(hello.host, sizeof(hello.host), "%s", ctx->job.topo.host);
    snprintf(hello.binding, sizeof(hello.binding), "%s", ctx->job.topo.binding);
    snprintf(hello.mute, sizeof(hello.mute), "%s", ctx->job.members.mute);
    stepaf_hello_pack(&hello, &ctx->env, pack);
}

/* Return the bootstrap's error, with the setting that determined the deadline. */
static stepaf_status_t name_deadline(const stepaf_error_t *late, int64_t timeout_us)
{
    struct stepaf_who missing = {late->peer_role, late->peer_rank, late->peer_world_rank};

    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_INIT, missing,
                                 "%.200s: STEPAF_INIT_TIMEOUT_US is %lld us", late->text,
                                 (long long)timeout_us);
}

/* Return the error of a failed exchange: the bootstrap does not know the phase in which it was
 * called. */
static stepaf_status_t fail_exchange(stepaf_status_t status, int64_t timeout_us)
{
    stepaf_error_t error = *stepaf_last_error();

    if (status == STEPAF_ERR_TIMEOUT)
        return name_deadline(&error, timeout_us);
    return stepaf_error_in(status, STEPAF_PHASE_INIT);
}

/* Read all hellos. Vacant ranks send none. */
static stepaf_status_t read_hellos(const struct stepaf_ctx *ctx, const void *all,
                                   const size_t *offsets, struct stepaf_hello *hellos)
{
    for (int r = 0; r < ctx->job.boot.size; r++) {
        size_t bytes = offsets[r + 1] - offsets[r];
        if (!bytes && r >= ctx->job.n_started)
            hellos[r] = stepaf_hello_vacant(hellos, ctx->job.n_started);
        else if (!stepaf_hello_read((const uint8_t *)all + offsets[r], bytes, &hellos[r]))
            return stepaf_error_set_peer(STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT,
                                         (struct stepaf_who){-1, -1, r},
                                         "the hello of rank %d is malformed", r);
    }
    return STEPAF_OK;
}

/* Decide the roles of the ranks that have been started, and of those that space is reserved for. */
static stepaf_status_t decide_roles(const struct stepaf_ctx *ctx, const struct stepaf_hello *hellos,
                                    const struct own_view *view, uint8_t *roles)
{
    int first_ffn = ctx->job.n_started + (int)ctx->env.room_attention;

    for (int r = ctx->job.n_started; r < ctx->job.boot.size; r++)
        roles[r] = r < first_ffn ? STEPAF_ATTENTION : STEPAF_FFN;
    return stepaf_roles_decide(hellos, ctx->job.n_started, ctx->job.boot.rank, &view->split, roles);
}

static stepaf_status_t exchange_hellos(struct stepaf_ctx *ctx, const struct own_view *view,
                                       stepaf_status_t own)
{
    struct stepaf_pack pack = {0};
    size_t few[FEW + 1]; /* on the stack: a small job learns of a rank that has no memory at all */
    size_t *offsets = few;
    struct stepaf_hello *hellos = calloc((size_t)ctx->job.boot.size, sizeof(*hellos));
    uint8_t *roles = calloc((size_t)ctx->job.boot.size, sizeof(*roles));
    int64_t timeout_us = own ? stepaf_env_init_timeout_us() : ctx->env.init_timeout_us;
    const struct stepaf_boot_return *returns = stepaf_boot_returns(&ctx->job.boot);
    stepaf_status_t status = STEPAF_OK;
    void *all = NULL;

    if (ctx->job.boot.size > FEW)
        offsets = calloc((size_t)ctx->job.boot.size + 1, sizeof(*offsets));
    if (!own && (!hellos || !roles))
        own = stepaf_error_no_memory(STEPAF_PHASE_INIT);
    introduce(ctx, view, own, &pack);
    if (pack.failed && !own) {
        free(pack.data);
        pack = (struct stepaf_pack){0};
        own = stepaf_error_no_memory(STEPAF_PHASE_INIT);
        introduce(ctx, view, own, &pack);
    }
    if (!offsets || pack.failed) {
        status = stepaf_error_no_memory(STEPAF_PHASE_INIT);
        goto out;
    }
    stepaf_error_t kept = *stepaf_last_error();
    if (returns)
        status = own ? own
                     : stepaf_return_look(ctx, returns, view->said, &view->contact, &pack, &all,
                                          offsets, roles, timeout_us);
    else
        status = ctx->job.boot.allgather(ctx->job.boot.self, pack.data, pack.bytes, &all, offsets,
                                         timeout_us);
    if (returns && status)
        goto out;
    if (status) {
        status = fail_exchange(status, timeout_us);
        goto out;
    }
    if (!hellos || !roles)
        status = stepaf_error_raise(&kept);
    if (!status)
        status = read_hellos(ctx, all, offsets, hellos);
    if (!status)
        status = stepaf_hellos_check(hellos, ctx->job.boot.size, ctx->job.boot.rank);
    if (!status && !returns)
        status = decide_roles(ctx, hellos, view, roles);
    if (!status)
        status = build_groups(ctx, hellos, roles);
    if (!status && returns) /* others may be elsewhere by now than expected */
        stepaf_returns_take_facts(ctx);
    if (!status && !returns)
        stepaf_init_meet(ctx, &(struct stepaf_heard){all, offsets, hellos, roles});
    if (!status)
        stepaf_trace_file_begin(ctx, !returns);
    if (own && status == own)
        stepaf_error_raise(&kept);
out:
    free(all);
    free(roles);
    free(hellos);
    if (offsets != few)
        free(offsets);
    free(pack.data);
    return status;
}

static stepaf_status_t open_peers(struct stepaf_ctx *ctx)
{
    int group = stepaf_is_attention(ctx) ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;
    int role = stepaf_is_attention(ctx) ? STEPAF_FFN : STEPAF_ATTENTION;
    stepaf_status_t status =
        stepaf_mesh_make(&ctx->env, (uint32_t)ctx->job.group_size[STEPAF_GROUP_ATTENTION],
                         (uint32_t)ctx->job.group_size[STEPAF_GROUP_FFN],
                         ctx->job.ranks[ctx->job.boot.rank].rank, &ctx->job.mesh);

    if (status)
        return status;
    ctx->n_peers = stepaf_mesh_peers(&ctx->job.mesh, (uint32_t)ctx->job.group_size[group]);
    ctx->n_alive = ctx->n_peers;
    struct stepaf_peer *fewer = realloc(ctx->peers, ctx->n_peers * sizeof(*ctx->peers));
    if (fewer)
        ctx->peers = fewer;
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        peer->ctx = ctx;
        int rank = (int)stepaf_mesh_rank(&ctx->job.mesh, p);
        peer->index = p;
        peer->who = (struct stepaf_who){role, rank, ctx->job.groups[group][rank]};
        stepaf_list_init(&peer->queue);
        stepaf_list_init(&peer->queue_node);
        stepaf_list_init(&peer->ready);
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_ctx_init(const stepaf_boot_t *boot, const stepaf_params_t *params,
                                const struct stepaf_feature_ops *feature, stepaf_status_t own,
                                struct stepaf_ctx **ctx_p)
{
    static const stepaf_params_t no_params;
    struct own_view view = {.said = STEPAF_ROLE_AUTO};
    stepaf_status_t status;
    struct stepaf_ctx *ctx;

    if (!boot || !boot->allgather || !boot->barrier || boot->size < 1 || boot->rank < 0 ||
        boot->rank >= boot->size)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_INIT,
                                "the bootstrap is incomplete");
    ctx = calloc(1, sizeof(*ctx));
    if (!ctx) { /* the others are notified */
        struct stepaf_ctx none = {.job = {.boot = *boot, .n_started = boot->size}};
        return exchange_hellos(&none, &view, stepaf_error_no_memory(STEPAF_PHASE_INIT));
    }
    ctx->job.boot = *boot;
    ctx->job.n_started = boot->size;
    ctx->feature = feature;
    ctx->job.members.event_fd = -1;
    ctx->up.deliver = stepaf_core_deliver;
    ctx->up.lost = stepaf_core_lost;
    ctx->up.refused = stepaf_core_refused;
    ctx->up.resolve = stepaf_region_resolve;
    ctx->up.env = &ctx->env;
    ctx->up.topo = &ctx->job.topo;
    stepaf_list_init(&ctx->net.queued);
    stepaf_list_init(&ctx->inbox.ready);
    stepaf_list_init(&ctx->gpu.proxies);
    status = own ? own : check_params(params ? params : &no_params, ctx_p);
    if (!status)
        status = stepaf_env_load(&ctx->env);
    if (!status)
        status = stepaf_init_make_room(ctx);
    if (!status)
        status = make_tables(ctx);
    if (!status)
        status = prepare_init(ctx, params ? params : &no_params, &view);
    status = exchange_hellos(ctx, &view, status);
    stepaf_split_free(&view.split);
    if (!status)
        status = open_peers(ctx);
    if (status) {
        ctx->job.boot.close = NULL; /* the caller keeps it */
        stepaf_ctx_free(ctx);
        return status;
    }
    stepaf_verdict_open(ctx);
    stepaf_metrics_open(ctx, stepaf_op_deliver_imm_observed(ctx));
    *ctx_p = ctx;
    return STEPAF_OK;
}
