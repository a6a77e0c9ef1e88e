/* SPDX-License-Identifier: Apache-2.0 */
/* Joining the job: one exchange tells every rank who is what and where, and whether all see the
 * same settings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "boot/split.h"
#include "engine/engine.h"

enum {
    INIT_MAGIC = 0x53544146,
    WIRE_VERSION = 1,
    CORES_MAX = 1024,
    TEXT_MAX = 320
};

/* What one rank says at init. */
struct introduction {
    uint32_t status;
    char text[TEXT_MAX];
    uint32_t role;
    uint32_t pid;
    uint64_t node_id;
    uint64_t digest;
    char host[STEPAF_TOPO_NAME_MAX];
    char binding[128];
    struct stepaf_unpack settings;
};

/* This rank's role, by what was said first. */
static stepaf_status_t find_role(const stepaf_boot_t *boot, const stepaf_params_t *params,
                                 const struct stepaf_env *env, stepaf_role_t *role_p)
{
    const char *split = env->split;
    stepaf_status_t status;
    uint8_t *roles;

    if ((params->field_mask & STEPAF_PARAM_ROLE) && params->role != STEPAF_ROLE_AUTO) {
        *role_p = params->role;
        return STEPAF_OK;
    }
    if (env->role != STEPAF_ENV_ROLE_AUTO) {
        *role_p = env->role == STEPAF_ENV_ROLE_ATTENTION ? STEPAF_ATTENTION : STEPAF_FFN;
        return STEPAF_OK;
    }
    if ((params->field_mask & STEPAF_PARAM_SPLIT) && params->split && params->split[0])
        split = params->split;
    if (split[0]) {
        roles = calloc((size_t)boot->size, 1);
        if (!roles)
            return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT, "out of memory");
        status = stepaf_split_parse(split, boot->size, roles);
        if (!status)
            *role_p = (stepaf_role_t)roles[boot->rank];
        free(roles);
        return status;
    }
    if (boot->app_number == 0 || boot->app_number == 1) {
        *role_p = boot->app_number ? STEPAF_FFN : STEPAF_ATTENTION;
        return STEPAF_OK;
    }
    return stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
                            "no role: give a split (such as STEPAF_SPLIT=attn=%d,ffn=%d), a role, "
                            "or start two programs",
                            boot->size - boot->size / 2, boot->size / 2);
}

static stepaf_status_t check_params(const stepaf_boot_t *boot, const stepaf_params_t *params)
{
    const char *what = NULL;

    if (!boot || !boot->allgather || !boot->barrier || boot->size < 1 || boot->rank < 0 ||
        boot->rank >= boot->size)
        what = "the bootstrap is incomplete";
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

/* Everything that this rank can find out alone. */
static stepaf_status_t prepare(struct stepaf_ctx *ctx, const stepaf_params_t *params)
{
    stepaf_status_t status = stepaf_env_load(&ctx->env);

    if (status)
        return status;
    stepaf_log_configure((stepaf_log_level_t)ctx->env.log_level, ctx->env.log_file);
    stepaf_log_set_rank(ctx->boot.rank);
    stepaf_clock_calibrate(&ctx->clock);
    if ((status = stepaf_topo_probe(NULL, &ctx->topo)))
        return status;
    if ((status = stepaf_transport_check_names(&ctx->env)))
        return status;
    ctx->progress_thread = ctx->env.progress == 1;
    if ((params->field_mask & STEPAF_PARAM_PROGRESS) && params->progress != STEPAF_PROGRESS_AUTO)
        ctx->progress_thread = params->progress == STEPAF_PROGRESS_THREAD;
    ctx->threads = ctx->progress_thread || ((params->field_mask & STEPAF_PARAM_THREADS) &&
                                            params->threads == STEPAF_THREADS_MULTIPLE);
    ctx->lock.used = ctx->threads;
    if (ctx->env.trace == STEPAF_ENV_TRACE_ON &&
        !stepaf_trace_open(&ctx->trace, (uint32_t)ctx->env.trace_records))
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT, "out of memory");
    return find_role(&ctx->boot, params, &ctx->env, &ctx->role);
}

static void introduce(const struct stepaf_ctx *ctx, stepaf_status_t status,
                      struct stepaf_pack *pack)
{
    char value[128];

    stepaf_pack_u32(pack, INIT_MAGIC);
    stepaf_pack_u32(pack, WIRE_VERSION);
    stepaf_pack_u32(pack, (uint32_t)status);
    stepaf_pack_text(pack, status ? stepaf_last_error()->text : "");
    stepaf_pack_u32(pack, (uint32_t)ctx->role);
    stepaf_pack_u32(pack, (uint32_t)getpid());
    stepaf_pack_u64(pack, ctx->topo.node_id);
    stepaf_pack_text(pack, ctx->topo.host);
    stepaf_pack_text(pack, ctx->topo.binding);
    if (status)
        return;
    stepaf_pack_u64(pack, stepaf_env_digest(&ctx->env));
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        stepaf_env_format(&ctx->env, i, value, sizeof(value));
        stepaf_pack_text(pack, value);
    }
}

static bool read_introduction(struct stepaf_unpack unpack, struct introduction *intro_p)
{
    bool ours = stepaf_unpack_u32(&unpack) == INIT_MAGIC &&
                stepaf_unpack_u32(&unpack) == WIRE_VERSION;

    *intro_p = (struct introduction){0};
    if (!ours || unpack.failed)
        return false;
    intro_p->status = stepaf_unpack_u32(&unpack);
    stepaf_unpack_text(&unpack, intro_p->text, sizeof(intro_p->text));
    intro_p->role = stepaf_unpack_u32(&unpack);
    intro_p->pid = stepaf_unpack_u32(&unpack);
    intro_p->node_id = stepaf_unpack_u64(&unpack);
    stepaf_unpack_text(&unpack, intro_p->host, sizeof(intro_p->host));
    stepaf_unpack_text(&unpack, intro_p->binding, sizeof(intro_p->binding));
    if (!intro_p->status)
        intro_p->digest = stepaf_unpack_u64(&unpack);
    intro_p->settings = unpack;
    return !unpack.failed && (intro_p->status || intro_p->role <= STEPAF_FFN);
}

/* Name the first setting in which rank @a rank differs from rank 0. */
static stepaf_status_t name_difference(const struct introduction *first, int rank,
                                       const struct introduction *other)
{
    struct stepaf_unpack one = first->settings, two = other->settings;
    char a[128], b[128];

    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        stepaf_env_describe(i, &info);
        stepaf_unpack_text(&one, a, sizeof(a));
        stepaf_unpack_text(&two, b, sizeof(b));
        if (info.must_agree && strcmp(a, b))
            return stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT,
                                    "%s differs: \"%.60s\" at rank 0, \"%.60s\" at rank %d",
                                    info.name, a, b, rank);
    }
    return stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT,
                            "settings differ between rank 0 and rank %d", rank);
}

/* Set bits of the cores in a list such as "0-3,8"; a list that is none names all. */
static void parse_cores(const char *list, uint8_t *cores_p)
{
    while (*list) {
        char *end;
        unsigned long from = strtoul(list, &end, 10), to = from;
        if (end != list && *end == '-')
            to = strtoul(end + 1, &end, 10);
        if (end == list || from > to || to >= CORES_MAX || (*end && *end != ',')) {
            memset(cores_p, 0xff, CORES_MAX / 8);
            return;
        }
        for (unsigned long core = from; core <= to; core++)
            cores_p[core / 8] |= (uint8_t)(1u << core % 8);
        list = *end ? end + 1 : end;
    }
}

/* Whether the ranks that may run on this rank's cores are more than those. */
static bool is_crowded(const struct stepaf_ctx *ctx, const struct introduction *intros)
{
    uint8_t mine[CORES_MAX / 8] = {0};
    int sharing = 0;

    parse_cores(ctx->topo.binding, mine);
    for (int r = 0; r < ctx->boot.size; r++) {
        uint8_t its[CORES_MAX / 8] = {0};
        bool overlap = false;
        parse_cores(intros[r].binding, its);
        for (int i = 0; i < CORES_MAX / 8; i++)
            overlap = overlap || (mine[i] & its[i]);
        sharing += overlap && intros[r].node_id == ctx->topo.node_id;
    }
    return sharing * (ctx->progress_thread ? 2 : 1) > ctx->topo.cores_usable;
}

/* Build the tables of ranks and groups. */
static stepaf_status_t settle(struct stepaf_ctx *ctx, const struct introduction *intros)
{
    int size = ctx->boot.size;

    ctx->ranks = calloc((size_t)size, sizeof(*ctx->ranks));
    for (int g = 0; g < 3; g++) {
        ctx->groups[g] = calloc((size_t)size, sizeof(int));
        ctx->rank[g] = -1;
        if (!ctx->groups[g] || !ctx->ranks)
            return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT, "out of memory");
    }
    ctx->one_clock = true;
    for (int r = 0; r < size; r++) {
        int group = intros[r].role == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;
        ctx->ranks[r] = (struct stepaf_rank){(uint8_t)intros[r].role,
                                             (uint32_t)ctx->group_size[group], intros[r].pid,
                                             intros[r].node_id};
        if (r == ctx->boot.rank)
            ctx->rank[group] = ctx->group_size[group];
        ctx->groups[group][ctx->group_size[group]++] = r;
        ctx->groups[STEPAF_GROUP_WORLD][ctx->group_size[STEPAF_GROUP_WORLD]++] = r;
        ctx->one_clock = ctx->one_clock && intros[r].node_id == intros[0].node_id;
    }
    ctx->rank[STEPAF_GROUP_WORLD] = ctx->boot.rank;
    if (!ctx->group_size[STEPAF_GROUP_ATTENTION] || !ctx->group_size[STEPAF_GROUP_FFN])
        return stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
                                "%d attention and %d FFN ranks: a job needs both",
                                ctx->group_size[STEPAF_GROUP_ATTENTION],
                                ctx->group_size[STEPAF_GROUP_FFN]);
    ctx->oversubscribed =
        ctx->env.backoff != STEPAF_ENV_BACKOFF_SPIN && is_crowded(ctx, intros);
    return STEPAF_OK;
}

/* Every rank judges the same words, and so comes to the same verdict. */
static stepaf_status_t judge(struct stepaf_ctx *ctx, const struct introduction *intros)
{
    for (int r = 0; r < ctx->boot.size; r++) {
        if (intros[r].status && r == ctx->boot.rank)
            return (stepaf_status_t)(int32_t)intros[r].status; /* its own words stand already */
        if (intros[r].status)
            return stepaf_error_set((stepaf_status_t)(int32_t)intros[r].status, STEPAF_PHASE_INIT,
                                    "rank %d: %s", r, intros[r].text);
    }
    for (int r = 1; r < ctx->boot.size; r++)
        if (intros[r].digest != intros[0].digest)
            return name_difference(&intros[0], r, &intros[r]);
    return settle(ctx, intros);
}

static stepaf_status_t exchange(struct stepaf_ctx *ctx, stepaf_status_t own)
{
    struct stepaf_pack pack = {0};
    size_t *offsets = calloc((size_t)ctx->boot.size + 1, sizeof(*offsets));
    struct introduction *intros = calloc((size_t)ctx->boot.size, sizeof(*intros));
    int64_t timeout_us = own ? 60000000 : ctx->env.init_timeout_us;
    stepaf_status_t status = STEPAF_OK;
    void *all = NULL;

    introduce(ctx, own, &pack);
    if (!offsets || !intros || pack.failed) {
        status = stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT, "out of memory");
        goto out;
    }
    stepaf_error_t kept = *stepaf_last_error();
    status = ctx->boot.allgather(ctx->boot.self, pack.data, pack.bytes, &all, offsets, timeout_us);
    if (status)
        goto out;
    for (int r = 0; r < ctx->boot.size && !status; r++)
        if (!read_introduction(stepaf_unpack_from((uint8_t *)all + offsets[r],
                                                  offsets[r + 1] - offsets[r]),
                               &intros[r]))
            status = stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT,
                                      "rank %d speaks another version of the protocol", r);
    if (!status)
        status = judge(ctx, intros);
    if (own && status == own)
        stepaf_error_raise(&kept);
out:
    free(all);
    free(intros);
    free(offsets);
    free(pack.data);
    return status;
}

static stepaf_status_t open_peers(struct stepaf_ctx *ctx)
{
    int group = stepaf_is_attention(ctx) ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;
    int role = stepaf_is_attention(ctx) ? STEPAF_FFN : STEPAF_ATTENTION;

    ctx->n_peers = (uint32_t)ctx->group_size[group];
    ctx->n_alive = ctx->n_peers;
    ctx->peers = calloc(ctx->n_peers, sizeof(*ctx->peers));
    if (!ctx->peers)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT, "out of memory");
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        peer->ctx = ctx;
        peer->who = (struct stepaf_who){role, (int)p, ctx->groups[group][p]};
        stepaf_list_init(&peer->queue);
        stepaf_list_init(&peer->queue_node);
        stepaf_list_init(&peer->ready);
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_ctx_init(const stepaf_boot_t *boot, const stepaf_params_t *params,
                                struct stepaf_ctx **ctx_p)
{
    static const stepaf_params_t no_params;
    stepaf_status_t status = check_params(boot, params ? params : &no_params);
    struct stepaf_ctx *ctx;

    if (status)
        return status;
    ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT, "out of memory");
    ctx->boot = *boot;
    ctx->host.deliver = stepaf_engine_deliver;
    ctx->host.lost = stepaf_engine_lost;
    ctx->host.resolve = stepaf_region_resolve;
    ctx->host.env = &ctx->env;
    ctx->host.topo = &ctx->topo;
    stepaf_list_init(&ctx->queued);
    stepaf_list_init(&ctx->ready);
    status = exchange(ctx, prepare(ctx, params ? params : &no_params));
    if (!status)
        status = open_peers(ctx);
    if (status) {
        ctx->boot.close = NULL; /* the caller keeps it */
        stepaf_ctx_free(ctx);
        return status;
    }
    *ctx_p = ctx;
    return STEPAF_OK;
}
