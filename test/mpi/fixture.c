/* SPDX-License-Identifier: Apache-2.0 */
/* A plain exchange: see fixture.h. */
#include "fixture.h"

#include <string.h>

static size_t answer_bytes;
static unsigned char *answers; /* [attention rank][id][slot] */

static uint64_t push_stream(int id, int attn, int ffn, uint32_t sequence)
{
    uint64_t place = (uint64_t)id << 40 | (uint64_t)(unsigned)attn << 20 | (unsigned)(ffn + 1);
    return hs_mix(hs_mix(place) ^ sequence);
}

static uint64_t pull_stream(int id, int attn, int ffn, uint32_t sequence)
{
    return ~push_stream(id, attn, ffn, sequence);
}

/* The FFN rank that a plan's peer is. */
static int ffn_rank(const struct fx_plan *plan, int peer)
{
    return stepaf_peer_rank(plan->job->ctx, peer);
}

bool fx_declare(struct hs_job *job, int id, size_t bytes, unsigned depth)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH, .depth = depth};

    if (!HS_OK(stepaf_key_declare(job->ctx, (uint64_t)(FX_PUSH_KEY + id), STEPAF_PUSH, bytes,
                                  &params)))
        return false;
    return HS_OK(
        stepaf_key_declare(job->ctx, (uint64_t)(FX_PULL_KEY + id), STEPAF_PULL, bytes, &params));
}

bool fx_plan_make(struct hs_job *job, int id, size_t bytes, unsigned depth, unsigned kind,
                  struct fx_plan *plan)
{
    stepaf_tensor_t push, pull[HS_MAX_RANKS];
    size_t room = bytes * depth * (unsigned)job->peers;

    *plan = (struct fx_plan){.job = job,
                             .id = id,
                             .kind = kind,
                             .depth = depth,
                             .bytes = bytes,
                             .patience_us = -1,
                             .skip = -1};
    if (!HS_OK(stepaf_alloc(job->ctx, room, STEPAF_MEM_HOST, (void **)&plan->source)) ||
        !HS_OK(stepaf_alloc(job->ctx, room, STEPAF_MEM_HOST, (void **)&plan->target)))
        return false;
    push = (stepaf_tensor_t){(uint64_t)(FX_PUSH_KEY + id), plan->source, bytes};
    for (int f = 0; f < job->peers; f++)
        pull[f] = (stepaf_tensor_t){(uint64_t)(FX_PULL_KEY + id),
                                    plan->target + (unsigned)f * depth * bytes, bytes};
    return HS_OK(stepaf_plan_create(job->ctx, &push, kind & FX_NO_PUSH ? 0 : 1, pull,
                                    kind & FX_NO_PULL ? 0 : job->peers,
                                    kind & FX_SCATTER ? STEPAF_PLAN_SCATTER : 0, &plan->handle));
}

/* Whether the slot's source may change: a transport may still send it, to other ranks than the one
 * that made the operation fail. If not, a start that does not wait will be refused. */
static bool may_fill(const struct fx_plan *plan, unsigned slot, uint32_t flags)
{
    int64_t deadline = hs_now_ns() + 20000000000LL * hs_slow();

    while (plan->last[slot] && stepaf_request_sent(plan->last[slot]) == STEPAF_INPROGRESS) {
        if (!(flags & STEPAF_START_WAIT) || hs_now_ns() > deadline)
            return false;
        hs_yield();
    }
    return true;
}

stepaf_status_t fx_start(struct fx_plan *plan, uint32_t flags, stepaf_request_h *request_p)
{
    bool scatter = plan->kind & FX_SCATTER;
    int n = plan->kind & FX_NO_PUSH ? 0 : scatter ? plan->job->peers : 1;
    unsigned slot = plan->next % plan->depth;
    stepaf_tensor_t push[HS_MAX_RANKS];
    uint64_t patience = plan->patience_us < 0 ? STEPAF_START_PARAM_PATIENCE : 0;
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_ALL & ~patience,
                                    .flags = flags,
                                    .timeout_us = -1,
                                    .n_answers = plan->n_answers,
                                    .patience_us = plan->patience_us,
                                    .push = n > 0 ? push : NULL,
                                    .n_push = n};
    bool fill = may_fill(plan, slot, flags);

    for (int f = 0; f < n; f++) {
        unsigned char *data =
            plan->source + (slot * (unsigned)plan->job->peers + (unsigned)f) * plan->bytes;
        size_t bytes = f == plan->skip ? 0 : plan->bytes;
        if (fill)
            hs_fill(data, bytes,
                    push_stream(plan->id, plan->job->index, scatter ? ffn_rank(plan, f) : -1,
                                plan->next));
        push[f] = (stepaf_tensor_t){(uint64_t)(FX_PUSH_KEY + plan->id), data, bytes};
    }
    stepaf_status_t status = stepaf_start_with(plan->handle, &params, request_p);
    if (status != STEPAF_OK)
        return status;
    HS_TRUE(fill);
    plan->last[slot] = *request_p;
    plan->next++;
    return status;
}

bool fx_verify(const struct fx_plan *plan, uint32_t sequence, int peer)
{
    bool good = true;

    for (int f = 0; f < plan->job->peers && !(plan->kind & FX_NO_PULL); f++) {
        const unsigned char *data =
            plan->target + ((unsigned)f * plan->depth + sequence % plan->depth) * plan->bytes;
        if (f != plan->skip && (peer < 0 || f == peer))
            good &= hs_verify("answer", data, plan->bytes,
                              pull_stream(plan->id, plan->job->index, ffn_rank(plan, f), sequence));
    }
    return good;
}

bool fx_exchange(struct fx_plan *plan)
{
    stepaf_request_h request = NULL;

    return HS_OK(fx_start(plan, STEPAF_START_WAIT, &request)) &&
           HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)) &&
           fx_verify(plan, plan->next - 1, -1);
}

bool fx_serve_open(struct hs_job *job, size_t bytes)
{
    size_t room = bytes * FX_DEPTH * FX_IDS * (unsigned)job->attn;

    answer_bytes = bytes;
    return HS_OK(stepaf_alloc(job->ctx, room, STEPAF_MEM_HOST, (void **)&answers));
}

static int id_of(stepaf_batch_h batch, const stepaf_batch_info_t *info)
{
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};

    if (info->n_tensors > 0 && HS_OK(stepaf_batch_tensor(batch, 0, &tensor)))
        return (int)tensor.key - FX_PUSH_KEY;
    if (info->n_tensors == 0 && HS_OK(stepaf_batch_answer(batch, 0, &tensor)))
        return (int)tensor.key - FX_PULL_KEY;
    return -1;
}

bool fx_look(struct hs_job *job, stepaf_batch_h batch)
{
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};
    stepaf_batch_info_t info = {.size = sizeof(info)};
    int id;

    if (!HS_OK(stepaf_batch_query(batch, &info)))
        return false;
    id = id_of(batch, &info);
    if (!HS_INT(id, >=, 0) || !HS_INT(id, <, FX_IDS) || !HS_INT(info.attention_rank, >=, 0) ||
        !HS_INT(info.attention_rank, <, job->attn))
        return false;
    if (info.n_tensors == 0)
        return true;
    if (!HS_INT(info.n_tensors, ==, 1) || !HS_OK(stepaf_batch_tensor(batch, 0, &tensor)))
        return false;
    /* Which kind it was is not said: the bytes are those of a broadcast, or this rank's slice. */
    uint64_t all = push_stream(id, info.attention_rank, -1, info.sequence);
    uint64_t mine = push_stream(id, info.attention_rank, job->index, info.sequence);
    uint64_t first = hs_mix(all);
    size_t told = tensor.bytes < sizeof first ? tensor.bytes : sizeof first;
    bool broadcast = memcmp(tensor.data, &first, told) == 0;
    return hs_verify("pushed", tensor.data, tensor.bytes, broadcast ? all : mine);
}

stepaf_status_t fx_answer(struct hs_job *job, stepaf_batch_h batch, uint32_t flags)
{
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_tensor_info_t pull = {.size = sizeof(pull)};
    stepaf_status_t status = stepaf_batch_query(batch, &info);

    if (status != STEPAF_OK)
        return status;
    if (info.n_answers == 0)
        return stepaf_respond(batch, NULL, 0, flags, NULL);
    status = stepaf_batch_answer(batch, 0, &pull);
    if (status != STEPAF_OK)
        return status;
    int id = (int)pull.key - FX_PULL_KEY;
    unsigned at = ((unsigned)info.attention_rank * FX_IDS + (unsigned)id) * FX_DEPTH +
                  info.sequence % FX_DEPTH;
    unsigned char *data = answers + at * answer_bytes;
    size_t bytes = pull.max_bytes < answer_bytes ? pull.max_bytes : answer_bytes;
    hs_fill(data, bytes, pull_stream(id, info.attention_rank, job->index, info.sequence));
    stepaf_tensor_t tensor = {pull.key, data, bytes};
    return stepaf_respond(batch, &tensor, 1, flags, NULL);
}

bool fx_serve(struct hs_job *job, int n)
{
    stepaf_batch_h batch = NULL;

    for (int got = 0; n > 0; n--) {
        if (!HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1,
                               &got)) ||
            !fx_look(job, batch) || !HS_OK(fx_answer(job, batch, STEPAF_RESPOND_RELEASE)))
            return false;
    }
    return true;
}

bool fx_open(struct hs_job *job, int n, size_t bytes, unsigned depth, unsigned kind,
             struct fx_plan *plans)
{
    for (int id = 0; id < n; id++)
        if (!fx_declare(job, id, bytes, depth))
            return false;
    for (int id = 0; id < n && job->role == STEPAF_ATTENTION; id++)
        if (!fx_plan_make(job, id, bytes, depth, kind, &plans[id]))
            return false;
    if (job->role == STEPAF_FFN && !fx_serve_open(job, bytes))
        return false;
    return HS_OK(stepaf_commit(job->ctx));
}
