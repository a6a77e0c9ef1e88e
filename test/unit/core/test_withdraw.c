/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are withdrawn: who may still name them, until when, and what goes with them. */
#include <stdlib.h>

#include "core/key.h"
#include "core/key_recv.h"
#include "core/op.h"
#include "core/plan_end.h"
#include "core/region.h"
#include "drop.h"
#include "wireup/advert.h"

enum { PUSHED = 1, PULLED = 2, OTHER = 3, BYTES = 100, DEPTH = 2, PEERS = 2 };

static struct fake_job *attention, *ffn;
static uint8_t *source;       /* the attention rank's */
static uint8_t buffers[4096]; /* the FFN rank's own */

static void begin(void)
{
    void *allocated;

    attention = fake_open(STEPAF_ATTENTION, PEERS, PEERS);
    ffn = fake_open(STEPAF_FFN, PEERS, PEERS);
    fake_key(attention, ffn, PUSHED, STEPAF_PUSH, BYTES, DEPTH);
    fake_key(attention, ffn, PULLED, STEPAF_PULL, BYTES, DEPTH);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(attention->handle, 4096, STEPAF_MEM_HOST, &allocated), 0);
    source = allocated;
}

static void end(void)
{
    EXPECT_WHOLE(attention);
    EXPECT_WHOLE(ffn);
    fake_close(attention);
    fake_close(ffn);
}

static stepaf_status_t declare(struct fake_job *job, uint64_t id, size_t bytes)
{

    return stepaf_key_declare(job->handle, id, STEPAF_PUSH, bytes, NULL);
}

/* Regions that the FFN rank offers in what it would declare now. */
static uint32_t n_offered(void)
{
    struct stepaf_advert advert;
    struct stepaf_pack pack = {0};

    stepaf_advert_pack(ffn->ctx, STEPAF_OK, &pack);
    CU_ASSERT_EQUAL_FATAL(
        stepaf_advert_read(pack.data, pack.bytes, STEPAF_FFN, PEERS, NULL, &advert), STEPAF_OK);
    uint32_t n = advert.n_regions;
    stepaf_advert_free(&advert);
    free(pack.data);
    return n;
}

static void what_is_not_declared_is_not_withdrawn(void)
{
    begin();
    attention->ctx->commit.changed = false;
    CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, OTHER), STEPAF_ERR_KEY);
    UNIT_CONTAINS(stepaf_last_error()->text, "key 3 is not declared");
    CU_ASSERT_FALSE(attention->ctx->commit.changed);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(NULL, PUSHED), STEPAF_ERR_HANDLE);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED), STEPAF_OK);
    CU_ASSERT_TRUE(attention->ctx->commit.changed);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED), STEPAF_ERR_KEY);
    CU_ASSERT_EQUAL(attention->ctx->memory.n_keys, 1);
    end();
}

static void what_nobody_knows_goes_at_once(void)
{
    begin();
    CU_ASSERT_EQUAL(stepaf_register(ffn->handle, buffers, sizeof buffers), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_set_recv(ffn->handle, PUSHED, buffers, 400, NULL, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(ffn->handle, PUSHED), STEPAF_OK);
    CU_ASSERT_PTR_NULL(ffn->ctx->memory.withdrawn);
    CU_ASSERT_EQUAL(ffn->ctx->memory.regions[0]->uses, 0);
    CU_ASSERT_FALSE(ffn->ctx->memory.regions[0]->target);
    CU_ASSERT_EQUAL(declare(ffn, PUSHED, 2000), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_set_recv(ffn->handle, PUSHED, buffers, 4000, NULL, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(ffn->handle, PUSHED), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_deregister(ffn->handle, buffers), STEPAF_OK);
    end();
}

/* Both forms of a key are there until the commit, and it is peers that still have the old one. */
static void what_peers_know_stays_until_the_commit(void)
{
    begin();
    CU_ASSERT_EQUAL_FATAL(fake_commit(ffn, attention), STEPAF_OK);
    const struct stepaf_key *old = stepaf_key_find(ffn->ctx, PUSHED);
    uint32_t n_regions = ffn->ctx->memory.n_regions;
    uint8_t *slice = stepaf_key_slice(old, 0);
    CU_ASSERT_EQUAL(n_offered(), 1);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(ffn->handle, PUSHED), STEPAF_OK);
    CU_ASSERT_EQUAL(n_offered(), 0);
    CU_ASSERT_PTR_NULL(stepaf_key_find(ffn->ctx, PUSHED));
    CU_ASSERT_PTR_EQUAL(stepaf_key_known(ffn->ctx, PUSHED), old);
    CU_ASSERT_EQUAL(declare(ffn, PUSHED, 8), STEPAF_OK);
    CU_ASSERT_PTR_EQUAL(stepaf_key_known(ffn->ctx, PUSHED), old);
    CU_ASSERT_EQUAL(
        stepaf_region_resolve(&ffn->ctx->up, ffn->ctx->memory.regions[0]->mem.id, 0, BYTES).at,
        slice);

    /* A peer's plan of today. */
    struct stepaf_msg plan = fake_msg(ffn, STEPAF_MSG_PLAN, 0, 0, 0);
    struct stepaf_msg tensor = fake_msg(ffn, STEPAF_MSG_TENSOR, 0, 0, 0);
    plan.word[0] = 1;
    plan.word[2] = DEPTH;
    tensor.word[0] = PUSHED;
    tensor.word[2] = BYTES;
    EXPECT_TAKEN(ffn, 0, &plan);
    EXPECT_TAKEN(ffn, 0, &tensor);

    /* A check that changes nothing, then the commit. */
    ffn->others_status = STEPAF_ERR_KEY;
    CU_ASSERT_EQUAL(fake_commit(ffn, attention), STEPAF_ERR_KEY);
    CU_ASSERT_PTR_EQUAL(stepaf_key_known(ffn->ctx, PUSHED), old);
    CU_ASSERT_EQUAL(ffn->ctx->memory.n_regions, n_regions);
    ffn->others_status = STEPAF_OK;
    CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(fake_commit(ffn, attention), STEPAF_OK);
    CU_ASSERT_PTR_NULL(ffn->ctx->memory.withdrawn);
    CU_ASSERT_EQUAL(ffn->ctx->memory.n_regions, 1); /* the new key's */
    const struct stepaf_key *now = stepaf_key_known(ffn->ctx, PUSHED);
    CU_ASSERT_PTR_NOT_NULL_FATAL(now);
    CU_ASSERT_EQUAL(now->max_bytes, 8);
    CU_ASSERT_EQUAL(n_offered(), 1);
    end();
}

/* Commit, in the midst of which a peer announces a plan that pushes @a bytes of the key. */
static stepaf_status_t commit_amid(uint32_t bytes)
{
    struct stepaf_msg quiesced = {.type = STEPAF_MSG_QUIESCED, .seq = 2};
    struct stepaf_msg ready = {.type = STEPAF_MSG_READY, .seq = 2};
    struct stepaf_msg plan = fake_msg(ffn, STEPAF_MSG_PLAN, 0, 0, 0);
    struct stepaf_msg tensor = fake_msg(ffn, STEPAF_MSG_TENSOR, 0, 0, 0);

    plan.epoch = tensor.epoch = 2;
    plan.word[0] = plan.word[2] = 1;
    tensor.word[0] = PUSHED;
    tensor.word[2] = bytes;
    fake_pair(ffn, attention);
    for (uint32_t p = 0; p < PEERS; p++)
        fake_tell(ffn, p, &quiesced);
    fake_say(ffn, 1, &plan);
    fake_say(ffn, 1, &tensor);
    fake_say(ffn, 1, &ready);
    fake_say(ffn, 0, &ready);
    ffn->sayings_wait_for = 2;
    return stepaf_commit(ffn->handle);
}

/* What is announced in the midst of a commit is of the epoch that begins. */
static void in_the_midst_of_a_commit_the_new_one_counts(void)
{
    for (int again = 0; again < 2; again++) {
        begin();
        CU_ASSERT_EQUAL_FATAL(fake_commit(ffn, attention), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_key_withdraw(ffn->handle, PUSHED), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED), STEPAF_OK);
        if (again) /* more than the old one takes */
            CU_ASSERT_EQUAL(declare(ffn, PUSHED, BYTES + 1), STEPAF_OK);
        CU_ASSERT_EQUAL(commit_amid(again ? BYTES + 1 : BYTES),
                        again ? STEPAF_OK : STEPAF_ERR_PROTOCOL);
        CU_ASSERT_EQUAL(ffn->ctx->counters.dropped_malformed, !again);
        end();
    }
}

/* The memory of several keys goes with the last of them, and the user's own not at all. */
static void memory_goes_with_the_last_key_in_it(void)
{
    begin();
    fake_key(attention, ffn, OTHER, STEPAF_PUSH, BYTES, DEPTH);
    CU_ASSERT_EQUAL(stepaf_register(ffn->handle, buffers, sizeof buffers), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_set_recv(ffn->handle, PUSHED, buffers, 200, (int[]){1}, 1), 0);
    CU_ASSERT_EQUAL_FATAL(fake_commit(ffn, attention), STEPAF_OK);
    CU_ASSERT_EQUAL(ffn->ctx->memory.n_regions, 2);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(ffn->handle, PUSHED), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_deregister(ffn->handle, buffers), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(n_offered(), 1);
    CU_ASSERT_EQUAL_FATAL(fake_commit(ffn, attention), STEPAF_OK);
    CU_ASSERT_EQUAL(ffn->ctx->memory.n_regions, 2);
    CU_ASSERT_EQUAL(n_offered(), 1);
    CU_ASSERT_EQUAL(stepaf_deregister(ffn->handle, buffers), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(ffn->handle, OTHER), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, OTHER), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(fake_commit(ffn, attention), STEPAF_OK);
    CU_ASSERT_EQUAL(ffn->ctx->memory.n_regions, 0);
    end();
}

/* A device may still read an answer from there. */
static void memory_goes_once_peers_have_acknowledged_all(void)
{
    begin();
    CU_ASSERT_EQUAL_FATAL(fake_commit(ffn, attention), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(ffn->handle, PUSHED), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED), STEPAF_OK);
    ffn->unquiet = 3;
    CU_ASSERT_EQUAL(fake_commit(ffn, attention), STEPAF_OK);
    CU_ASSERT_EQUAL(ffn->unquiet, 0);
    CU_ASSERT_EQUAL(ffn->ctx->memory.n_regions, 0);
    end();
}

static void plans_hold_their_keys(void)
{
    stepaf_tensor_t push = {PUSHED, NULL, BYTES}, pull[PEERS];
    stepaf_plan_h plan;

    begin();
    push.data = source;
    for (int p = 0; p < PEERS; p++)
        pull[p] = (stepaf_tensor_t){PULLED, source + 1000 * (p + 1), BYTES};
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(attention->handle, &push, 1, pull, PEERS, 0, &plan),
                          STEPAF_OK);
    for (int committed = 0; committed < 2; committed++) {
        CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED), STEPAF_ERR_STATE);
        UNIT_CONTAINS(stepaf_last_error()->text, "plan 0 names key 1");
        CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PULLED), STEPAF_ERR_STATE);
        CU_ASSERT_EQUAL(attention->ctx->memory.n_keys, 2);
        if (!committed)
            CU_ASSERT_EQUAL_FATAL(fake_commit(attention, ffn), STEPAF_OK);
    }
    CU_ASSERT_EQUAL(stepaf_plan_destroy(plan), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PULLED), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_plan_create(attention->handle, &push, 1, pull, PEERS, 0, &plan),
                    STEPAF_ERR_KEY);
    end();
}

/* Say so for both peers, as of operation 0 of plan @a plan: on its way, calls take it in. */
static void tell(enum stepaf_msg_type type, uint32_t plan)
{
    for (uint32_t p = 0; p < PEERS; p++) {
        struct stepaf_msg msg = fake_msg(attention, type, plan, 0, 0);
        fake_say(attention, p, &msg);
    }
}

/* What push_pull has kept ends with the key, but not while it is under way. */
static void one_shot_plans_end_with_their_keys(void)
{
    stepaf_tensor_t push = {PUSHED, NULL, BYTES}, pull[2][PEERS];
    stepaf_request_h requests[2];

    begin();
    push.data = source;
    CU_ASSERT_EQUAL_FATAL(fake_commit(attention, ffn), STEPAF_OK);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t p = 0; p < PEERS; p++)
            pull[i][p] = (stepaf_tensor_t){PULLED, source + 500 * (2 * i + p + 1), BYTES};
        CU_ASSERT_EQUAL(stepaf_push_pull(attention->handle, &push, 1, pull[i], PEERS, &requests[i]),
                        STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED), STEPAF_ERR_STATE);
        tell(STEPAF_MSG_RESPONSE, i);
        CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED),
                        STEPAF_ERR_STATE); /* held */
        CU_ASSERT_EQUAL(stepaf_test(requests[i]), STEPAF_OK);
        if (i) /* the first has not ended, either */
            CU_ASSERT_EQUAL(stepaf_test(requests[0]), STEPAF_ERR_STATE);
        tell(STEPAF_MSG_RELEASE, i);
    }
    fake_forget(attention);
    CU_ASSERT_EQUAL(stepaf_key_withdraw(attention->handle, PUSHED), STEPAF_OK);
    CU_ASSERT_EQUAL(fake_count(attention, STEPAF_MSG_CLOSE), 2 * PEERS);
    CU_ASSERT_EQUAL(stepaf_test(requests[0]), STEPAF_ERR_HANDLE);
    CU_ASSERT_EQUAL(stepaf_free(attention->handle, source), STEPAF_OK);
    end();
}

/* Nobody could end them, so they go with the memory that they name, and with the number of
 * others. */
static void one_shot_plans_do_not_pile_up(void)
{
    stepaf_tensor_t push = {PUSHED, NULL, BYTES}, pull[PEERS];
    stepaf_request_h request = NULL, first = NULL;

    begin();
    push.data = source;
    CU_ASSERT_EQUAL_FATAL(fake_commit(attention, ffn), STEPAF_OK);
    for (uint32_t i = 0; i < STEPAF_MAX_CACHED + 10; i++) {
        for (uint32_t p = 0; p < PEERS; p++)
            pull[p] = (stepaf_tensor_t){PULLED, source + 400 + i + 1500 * p, BYTES};
        CU_ASSERT_EQUAL(stepaf_push_pull(attention->handle, &push, 1, pull, PEERS, &request), 0);
        const struct stepaf_op *op =
            stepaf_table_get(&attention->ctx->tables.ops, stepaf_handle_index(request));
        for (uint32_t p = 0; p < PEERS; p++) {
            struct stepaf_msg answer =
                fake_msg(attention, STEPAF_MSG_RESPONSE, op->plan->index, op->slot, op->seq);
            answer.flags = STEPAF_MSG_RELEASED;
            fake_tell(attention, p, &answer);
        }
        fake_forget(attention);
        first = first ? first : request;
        if (i) /* the first one's result is still to be had */
            CU_ASSERT_EQUAL(stepaf_wait(request, -1), STEPAF_OK);
    }
    CU_ASSERT_EQUAL(attention->ctx->cache.n, STEPAF_MAX_CACHED);
    CU_ASSERT_EQUAL(stepaf_free(attention->handle, source), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(attention->ctx->cache.n, STEPAF_MAX_CACHED); /* and nothing has changed */
    CU_ASSERT_EQUAL(stepaf_wait(first, -1), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_free(attention->handle, source), STEPAF_OK);
    CU_ASSERT_EQUAL(attention->ctx->cache.n, 0);
    end();
}

/* What is empty is nowhere, and hides nothing. */
static void destinations_overlap_whatever_lies_between(void)
{
    stepaf_plan_h plan;

    begin();
    for (size_t at = 0; at <= BYTES * DEPTH; at += BYTES) {
        stepaf_tensor_t pull[2 * PEERS] = {{PULLED, source, BYTES},
                                           {PULLED, source + 10, 0},
                                           {PULLED, source + at, BYTES},
                                           {PULLED, NULL, 0}};
        CU_ASSERT_EQUAL(stepaf_plan_create(attention->handle, NULL, 0, pull, 2 * PEERS, 0, &plan),
                        at < BYTES * DEPTH ? STEPAF_ERR_INVALID : STEPAF_OK);
    }
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is not declared is not withdrawn", what_is_not_declared_is_not_withdrawn},
        {"what nobody knows goes at once", what_nobody_knows_goes_at_once},
        {"what peers know stays until the commit", what_peers_know_stays_until_the_commit},
        {"in the midst of a commit the new one counts",
         in_the_midst_of_a_commit_the_new_one_counts},
        {"memory goes with the last key in it", memory_goes_with_the_last_key_in_it},
        {"memory goes once peers have acknowledged all",
         memory_goes_once_peers_have_acknowledged_all},
        {"plans hold their keys", plans_hold_their_keys},
        {"one-shot plans end with their keys", one_shot_plans_end_with_their_keys},
        {"one-shot plans do not pile up", one_shot_plans_do_not_pile_up},
        {"destinations overlap whatever lies between", destinations_overlap_whatever_lies_between},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
