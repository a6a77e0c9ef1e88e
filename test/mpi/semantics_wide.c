/* SPDX-License-Identifier: Apache-2.0 */
/* Semantics at the limits: as many tensors as an operation may have, as deep as a key may be, and
 * every size different from its plan's. */
#include "semantics.h"

#include <string.h>

enum { WIDTH = STEPAF_MAX_TENSORS, DEPTH = STEPAF_MAX_DEPTH, ROOM = 40, PUSH = 1000, PULL = 2000 };

static unsigned char *source, *target;

/* Bytes of tensor @a i of operation @a n, there and back. */
static size_t bytes_of(int n, int i)
{
    return (size_t)((n + i) % ROOM);
}

static unsigned char value(int n, int i, int ffn)
{
    return (unsigned char)(n * WIDTH + i + 100 * (ffn + 1));
}

static bool is_filled(const void *data, size_t bytes, unsigned char with)
{
    for (size_t at = 0; at < bytes; at++)
        if (!HS_INT(((const unsigned char *)data)[at], ==, with))
            return false;
    return true;
}

bool sem_wide_declare(struct hs_job *job)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH, .depth = DEPTH};
    size_t room = (size_t)DEPTH * WIDTH * ROOM;

    for (int i = 0; i < WIDTH; i++) {
        if (!HS_OK(stepaf_key_declare(job->ctx, (uint64_t)(PUSH + i), STEPAF_PUSH, ROOM, &params)))
            return false;
        if (!HS_OK(stepaf_key_declare(job->ctx, (uint64_t)(PULL + i), STEPAF_PULL, ROOM, &params)))
            return false;
    }
    return HS_OK(stepaf_alloc(job->ctx, room, STEPAF_MEM_HOST, (void **)&source)) &&
           HS_OK(stepaf_alloc(job->ctx, room * HS_MAX_RANKS, STEPAF_MEM_HOST, (void **)&target));
}

static unsigned char *target_of(int ffn, int i)
{
    return target + ((size_t)ffn * WIDTH + (size_t)i) * DEPTH * ROOM;
}

static void list(int n, uint64_t key, int ffn, stepaf_tensor_t *tensors)
{
    for (int i = 0; i < WIDTH; i++) {
        unsigned char *data = source + ((size_t)n * WIDTH + (size_t)i) * ROOM;
        tensors[i] = (stepaf_tensor_t){key + (uint64_t)i, data, bytes_of(n, i)};
        memset(data, value(n, i, ffn), bytes_of(n, i));
    }
}

static void attend(struct hs_job *job)
{
    stepaf_tensor_t push[WIDTH], pull[HS_MAX_RANKS * WIDTH];
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = WIDTH};
    stepaf_request_h requests[DEPTH] = {NULL}, none = NULL;
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_plan_h plan = NULL;

    for (int i = 0; i < WIDTH; i++)
        push[i] = (stepaf_tensor_t){(uint64_t)(PUSH + i), source, ROOM};
    for (int f = 0; f < job->ffn; f++)
        for (int i = 0; i < WIDTH; i++)
            pull[f * WIDTH + i] = (stepaf_tensor_t){(uint64_t)(PULL + i), target_of(f, i), ROOM};
    if (!HS_OK(stepaf_plan_create(job->ctx, push, WIDTH, pull, job->ffn * WIDTH, 0, &plan)))
        return;
    HS_INT(stepaf_plan_depth(plan), ==, DEPTH);
    for (int n = 0; n < DEPTH; n++) {
        list(n, PUSH, -1, push);
        HS_OK(stepaf_start_with(plan, &params, &requests[n]));
    }
    HS_STATUS(stepaf_start(plan, &none), STEPAF_ERR_WOULD_BLOCK);
    for (int n = 0; n < DEPTH; n++) {
        HS_OK(stepaf_wait(requests[n], STEPAF_TIMEOUT_DEFAULT));
        for (int f = 0; f < job->ffn; f++)
            for (int i = 0; i < WIDTH; i++) {
                HS_OK(stepaf_request_tensor(requests[n], f * WIDTH + i, &info));
                HS_INT(info.bytes, ==, bytes_of(n, i));
                HS_TRUE(info.data == target_of(f, i) + (size_t)n * ROOM);
                is_filled(info.data, info.bytes, value(n, i, f));
            }
    }
    hs_sync(job);
    HS_OK(stepaf_plan_destroy(plan));
}

void sem_wide(struct hs_job *job)
{
    stepaf_batch_h batches[DEPTH] = {NULL};
    stepaf_tensor_t answer[WIDTH];
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    int n = 0;

    if (sem_actor(job)) {
        attend(job);
        return;
    }
    for (int got = 0; got < DEPTH && sem_ffn(job); got += n)
        if (!HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batches[got],
                               DEPTH - got, &n)))
            return;
    for (int at = DEPTH - 1; at >= 0 && sem_ffn(job); at--) {
        for (int i = 0; i < WIDTH; i++) {
            HS_OK(stepaf_batch_tensor(batches[at], i, &info));
            HS_INT(info.bytes, ==, bytes_of(at, i));
            is_filled(info.data, info.bytes, value(at, i, -1));
        }
        list(at, PULL, job->index, answer);
        HS_OK(stepaf_respond(batches[at], answer, WIDTH, STEPAF_RESPOND_RELEASE, NULL));
    }
    hs_sync(job);
}
