/* SPDX-License-Identifier: Apache-2.0 */
/* Answers tensor by tensor. An FFN rank confirms the push, sends two of three tensors, in any
 * order, and waits until the attention rank has seen both, which tells so by a second plan; then it
 * answers, or lets go of the batch. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

enum { BYTES = 40000, TENSORS = 3, DEPTH = 2, PUSH = 1, GO = 2, PULL = 10, DROPPED = 7 };

static unsigned char *memory;

/* Of tensor @a i of operation @a n: how long it is, what it has. */
static size_t bytes_of(uint64_t n, int i)
{
    return n % 4 == 0 ? BYTES : hs_mix(n * TENSORS + (uint64_t)i) % (BYTES + 1);
}

static uint64_t model_of(const struct hs_job *job, int attention, int ffn, uint64_t n, int i)
{
    (void)job;
    return ((n * TENSORS + (uint64_t)i) << 16) + (uint64_t)(attention * 100 + ffn);
}

static bool is_dropped(uint64_t n)
{
    return n % DROPPED == DROPPED - 1;
}

/* ---- attention ---- */

struct attention {
    struct hs_job *job;
    stepaf_plan_h plan, go;
};

static bool check_tensor(const struct attention *self, stepaf_request_h request, uint64_t n, int p,
                         int i)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    return HS_OK(stepaf_request_tensor(request, p * TENSORS + i, &info)) &&
           HS_INT(info.bytes, ==, bytes_of(n, i)) &&
           hs_verify(
               "a tensor", info.data, info.bytes,
               model_of(self->job, self->job->index, stepaf_peer_rank(self->job->ctx, p), n, i));
}

/* What is here before the peer answers: all but the tensor that stays behind. */
static bool check_ahead(const struct attention *self, stepaf_request_h request, uint64_t n, int p)
{
    int behind = (int)(n % TENSORS), rank = stepaf_peer_rank(self->job->ctx, p);

    if (!HS_OK(stepaf_wait_push(request, rank, STEPAF_TIMEOUT_DEFAULT)))
        return false;
    for (int i = 0; i < TENSORS; i++)
        if (i != behind &&
            (!HS_OK(stepaf_wait_tensor(request, p * TENSORS + i, STEPAF_TIMEOUT_DEFAULT)) ||
             !check_tensor(self, request, n, p, i)))
            return false;
    return HS_STATUS(stepaf_request_tensor(request, p * TENSORS + behind, NULL),
                     STEPAF_INPROGRESS) &&
           HS_STATUS(stepaf_wait_tensor(request, p * TENSORS + behind, 0), STEPAF_ERR_TIMEOUT) &&
           HS_STATUS(stepaf_request_peer(request, rank), STEPAF_INPROGRESS);
}

static bool operate(const struct attention *self, uint64_t n)
{
    stepaf_request_h request, go;
    int peers = self->job->peers;

    memcpy(memory, &n, sizeof(n));
    if (!HS_OK(stepaf_start(self->plan, &request)))
        return false;
    for (int p = 0; p < peers; p++)
        if (!check_ahead(self, request, n, p))
            return false;
    if (!HS_OK(stepaf_start(self->go, &go)))
        return false;
    if (is_dropped(n))
        return HS_STATUS(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_CANCELED) &&
               HS_OK(stepaf_wait_rest(request, STEPAF_TIMEOUT_DEFAULT)) &&
               HS_STATUS(stepaf_request_tensor(request, (int)(n % TENSORS), NULL),
                         STEPAF_ERR_CANCELED) &&
               check_tensor(self, request, n, 0, (int)((n + 1) % TENSORS)) &&
               HS_OK(stepaf_wait(go, STEPAF_TIMEOUT_DEFAULT));
    if (!HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)))
        return false;
    for (int at = 0; at < peers * TENSORS; at++)
        if (!check_tensor(self, request, n, at / TENSORS, at % TENSORS))
            return false;
    return HS_OK(stepaf_wait_push(request, 0, 0)) && HS_OK(stepaf_wait(go, STEPAF_TIMEOUT_DEFAULT));
}

static void attend(struct hs_job *job, uint64_t ops)
{
    stepaf_tensor_t push = {PUSH, memory, sizeof(uint64_t)}, go = {GO, memory, sizeof(uint64_t)};
    stepaf_tensor_t pull[HS_MAX_RANKS * TENSORS];
    struct attention self = {.job = job};

    for (int at = 0; at < job->peers * TENSORS; at++)
        pull[at] = (stepaf_tensor_t){(uint64_t)(PULL + at % TENSORS),
                                     memory + BYTES * (size_t)(1 + at * DEPTH), BYTES};
    if (!HS_OK(stepaf_plan_create(job->ctx, &push, 1, pull, job->peers * TENSORS, 0, &self.plan)) ||
        !HS_OK(stepaf_plan_create(job->ctx, &go, 1, NULL, 0, 0, &self.go)) ||
        !HS_OK(stepaf_commit(job->ctx)))
        return;
    for (uint64_t n = 0; n < ops; n++)
        if (!operate(&self, n))
            return;
}

/* ---- FFN ---- */

/* A batch of each attention rank, all of one plan. */
static bool take_all(struct hs_job *job, stepaf_batch_h *batches)
{
    int n;

    return HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, batches,
                             HS_MAX_RANKS, &n)) &&
           HS_INT(n, ==, job->attn);
}

static bool refuses(stepaf_batch_h batch, const stepaf_tensor_t *tensors, int sent)
{
    stepaf_tensor_t other = tensors[sent], all[TENSORS];

    memcpy(all, tensors, sizeof(all));
    other.bytes = BYTES + 1;
    all[sent].bytes = tensors[sent].bytes ? tensors[sent].bytes - 1 : 1;
    return HS_STATUS(stepaf_respond_tensor(batch, sent, &tensors[sent]), STEPAF_ERR_STATE) &&
           HS_STATUS(stepaf_respond_tensor(batch, sent, &other), STEPAF_ERR_SIZE) &&
           HS_STATUS(stepaf_respond_tensor(batch, sent, &tensors[(sent + 1) % TENSORS]),
                     STEPAF_ERR_INVALID) &&
           HS_STATUS(stepaf_respond_tensor(batch, TENSORS, &tensors[0]), STEPAF_ERR_INVALID) &&
           HS_STATUS(stepaf_respond_tensor(batch, -1, &tensors[0]), STEPAF_ERR_INVALID) &&
           HS_STATUS(stepaf_respond_tensor(batch, sent, NULL), STEPAF_ERR_INVALID) &&
           HS_STATUS(stepaf_respond(batch, all, TENSORS, 0, NULL), STEPAF_ERR_INVALID);
}

static bool send_ahead(struct hs_job *job, stepaf_batch_h batch, int attention, uint64_t n,
                       stepaf_tensor_t *tensors)
{
    int behind = (int)(n % TENSORS), first = (behind + 1 + (int)(n / TENSORS % 2)) % TENSORS;
    int second = TENSORS - behind - first;

    for (int i = 0; i < TENSORS; i++) {
        unsigned char *data =
            memory + BYTES * (size_t)(((uint64_t)attention * DEPTH + n % DEPTH) * TENSORS) +
            BYTES * (size_t)i;
        tensors[i] = (stepaf_tensor_t){(uint64_t)(PULL + i), data, bytes_of(n, i)};
        hs_fill(data, tensors[i].bytes, model_of(job, attention, job->index, n, i));
    }
    return HS_OK(stepaf_confirm(batch)) &&
           HS_OK(stepaf_respond_tensor(batch, first, &tensors[first])) &&
           HS_OK(stepaf_respond_tensor(batch, second, &tensors[second])) &&
           refuses(batch, tensors, first);
}

/* With a request, sources are in use until it is complete: then they may change. */
static bool answer(stepaf_batch_h batch, stepaf_tensor_t *tensors, uint64_t n)
{
    stepaf_request_h request = NULL;

    if (!HS_OK(stepaf_respond(batch, tensors, TENSORS, STEPAF_RESPOND_RELEASE,
                              n % 2 ? &request : NULL)))
        return false;
    if (request && !HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)))
        return false;
    for (int i = 0; request && i < TENSORS; i++)
        memset((void *)(uintptr_t)tensors[i].data, 0xee, tensors[i].bytes);
    return true;
}

static bool serve_one(struct hs_job *job, uint64_t n)
{
    stepaf_batch_h batches[HS_MAX_RANKS], gone[HS_MAX_RANKS];
    stepaf_tensor_t tensors[HS_MAX_RANKS][TENSORS];

    if (!take_all(job, batches))
        return false;
    for (int a = 0; a < job->attn; a++)
        if (!send_ahead(job, batches[a], a, n, tensors[a]))
            return false;
    if (!take_all(job, gone))
        return false;
    for (int a = 0; a < job->attn; a++)
        if (!HS_OK(stepaf_release(gone[a])) || !(is_dropped(n) ? HS_OK(stepaf_release(batches[a]))
                                                               : answer(batches[a], tensors[a], n)))
            return false;
    return true;
}

static void body(struct hs_job *job)
{
    uint64_t ops = (uint64_t)hs_option_int(job, "--ops", 200);
    size_t most = (size_t)(HS_MAX_RANKS * TENSORS * DEPTH + 1) * BYTES;
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH, .depth = DEPTH};
    void *room;

    if (!hs_open(job) || !HS_OK(stepaf_alloc(job->ctx, most, STEPAF_MEM_HOST, &room)))
        return;
    memory = room;
    for (int i = 0; i < TENSORS; i++)
        if (!HS_OK(stepaf_key_declare(job->ctx, (uint64_t)(PULL + i), STEPAF_PULL, BYTES, &params)))
            return;
    if (!HS_OK(stepaf_key_declare(job->ctx, PUSH, STEPAF_PUSH, sizeof(uint64_t), &params)) ||
        !HS_OK(stepaf_key_declare(job->ctx, GO, STEPAF_PUSH, sizeof(uint64_t), &params)))
        return;
    hs_step("exchange");
    if (job->role == STEPAF_ATTENTION) {
        attend(job, ops);
    } else if (HS_OK(stepaf_commit(job->ctx))) {
        for (uint64_t n = 0; n < ops; n++)
            if (!serve_one(job, n))
                break;
    }
    hs_sync(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "ahead", .options = "--ops", .limit_s = 120, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
