/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include <stdlib.h>
#include <time.h>

enum { FIRST_PAUSE_US = 100, LONGEST_PAUSE_US = 20000, ABORT_TIMEOUT_US = 1000000 };

int words_create(struct replicas *replicas, struct words *words_p, struct trouble *trouble)
{
    stepaf_context_h ctx = replicas->ctx;
    struct words words = {.ctx = ctx, .replicas = replicas, .ffn_ranks = replicas->ffn_ranks};
    size_t ranks = (size_t)words.ffn_ranks;
    void *memory = NULL;
    stepaf_tensor_t *pull = calloc(ranks, sizeof(*pull));
    stepaf_status_t status = STEPAF_ERR_NO_MEMORY;
    if (pull)
        status = stepaf_alloc(ctx, sizeof(*words.header) + ranks * sizeof(*words.replies),
                              STEPAF_MEM_HOST, &memory);
    if (status == STEPAF_OK) {
        words.header = memory;
        words.replies = (struct wire_reply *)(words.header + 1);
        const stepaf_tensor_t push = {wire_push_key(WIRE_WORDS, WIRE_HEADER), words.header,
                                      sizeof(*words.header)};
        for (size_t f = 0; f < ranks; f++)
            pull[f] = (stepaf_tensor_t){wire_pull_key(WIRE_WORDS, WIRE_REPLY), &words.replies[f],
                                        sizeof(*words.replies)};
        status = stepaf_plan_create(ctx, &push, 1, pull, words.ffn_ranks, 0, &words.plan);
    }
    free(pull);
    if (status != STEPAF_OK)
        return trouble_status(ctx, status, "making a plan", 0, trouble);
    *words_p = words;
    return 0;
}

/* If others have the same part, a lost rank is not needed. */
static uint32_t skips(const struct words *words)
{
    return words->replicas->n > 1 ? STEPAF_START_SKIP_LOST : 0;
}

static stepaf_status_t say(struct words *words, int kind, int lost, uint32_t flags,
                           int64_t timeout_us)
{
    stepaf_start_params_t params = {.field_mask =
                                        STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_TIMEOUT,
                                    .flags = flags | STEPAF_START_WAIT,
                                    .timeout_us = timeout_us};
    *words->header = (struct wire_header){WIRE_MAGIC, kind, WIRE_WORDS, -1, 0, lost};
    stepaf_status_t status = stepaf_start_with(words->plan, &params, &words->request);
    if (status == STEPAF_OK)
        status = stepaf_wait(words->request, timeout_us);
    if (!skips(words) || status != STEPAF_ERR_PEER_LOST)
        return status;
    for (int f = 0; f < words->ffn_ranks; f++) /* the rest is to have answered */
        if (stepaf_wait_peer(words->request, f, timeout_us) == STEPAF_ERR_TIMEOUT)
            return STEPAF_ERR_TIMEOUT;
    return STEPAF_OK;
}

/* Return whether all FFN ranks have said that all attention ranks have stopped; -1 for trouble. */
static int all_stopped(const struct words *words, struct trouble *trouble)
{
    int stopped = 1;
    for (int f = 0; f < words->ffn_ranks; f++) {
        const struct wire_reply *reply = &words->replies[f];
        if (skips(words) && stepaf_request_peer(words->request, f) != STEPAF_OK)
            continue;
        if (reply->magic != WIRE_MAGIC)
            return trouble_malformed(words->ctx, stepaf_world_rank(words->ctx, STEPAF_GROUP_FFN, f),
                                     "answer", trouble);
        if (reply->state == WIRE_RANK_LOST)
            return trouble_lost(words->ctx, reply->lost, trouble);
        words->replicas->hold |= reply->state == WIRE_HOLDING;
        stopped &= reply->state == WIRE_ALL_STOPPED;
    }
    return stopped;
}

int words_hold(struct words *words, int64_t timeout_us, struct trouble *trouble)
{
    stepaf_status_t status = say(words, WIRE_HOLD, -1, skips(words), timeout_us);
    if (status != STEPAF_OK)
        return trouble_status(words->ctx, status, "holding", timeout_us, trouble);
    if (all_stopped(words, trouble) < 0 || replicas_commit(words->ctx, trouble))
        return -1;
    replicas_resume(words->replicas);
    return 0;
}

int words_stop(struct words *words, int64_t timeout_us, struct trouble *trouble)
{
    int stopped = 0;
    words->replicas->hold = 0;
    for (long pause_us = FIRST_PAUSE_US; !stopped; pause_us *= 2) {
        stepaf_status_t status = say(words, WIRE_STOP, -1, skips(words), timeout_us);
        if (status != STEPAF_OK)
            return trouble_status(words->ctx, status, "stopping", timeout_us, trouble);
        stopped = all_stopped(words, trouble);
        if (stopped < 0)
            return -1;
        /* A rank that has not stopped wants it: one that has stopped no longer asks. */
        if (words->replicas->hold && words_hold(words, timeout_us, trouble))
            return -1;
        words->replicas->hold = 0;
        if (pause_us > LONGEST_PAUSE_US)
            pause_us = LONGEST_PAUSE_US;
        if (!stopped)
            nanosleep(&(struct timespec){0, pause_us * 1000}, NULL);
    }
    stepaf_status_t status = say(words, WIRE_BYE, -1, skips(words), timeout_us);
    if (status != STEPAF_OK)
        return trouble_status(words->ctx, status, "stopping", timeout_us, trouble);
    return 0;
}

void words_abort(struct words *words, int lost)
{
    if (words->plan)
        (void)say(words, WIRE_ABORT, lost, STEPAF_START_SKIP_LOST, ABORT_TIMEOUT_US);
}
