/* SPDX-License-Identifier: Apache-2.0 */
/* Numbered objects, and handles: any value at all may come in as one. */
#include <stdlib.h>

#include "core/table.h"
#include "fake.h"
#include "unit.h"

static void numbers_are_dense_and_reused(void)
{
    struct stepaf_table table = {0};
    int objects[100];
    uint32_t index;

    for (uint32_t i = 0; i < 100; i++) {
        CU_ASSERT_TRUE_FATAL(stepaf_table_add(&table, &objects[i], 100, &index));
        CU_ASSERT_EQUAL(index, i);
    }
    index = 12345;
    CU_ASSERT_FALSE(stepaf_table_add(&table, &objects[0], 100, &index));
    CU_ASSERT_EQUAL(index, 12345);
    stepaf_table_remove(&table, 70);
    stepaf_table_remove(&table, 3);
    CU_ASSERT_PTR_NULL(stepaf_table_get(&table, 3));
    CU_ASSERT_TRUE(stepaf_table_add(&table, &objects[70], 100, &index));
    CU_ASSERT_EQUAL(index, 3);
    CU_ASSERT_TRUE(stepaf_table_add(&table, &objects[3], 100, &index));
    CU_ASSERT_EQUAL(index, 70);
    CU_ASSERT_PTR_EQUAL(stepaf_table_get(&table, 3), &objects[70]);
    CU_ASSERT_PTR_EQUAL(stepaf_table_get(&table, 99), &objects[99]);
    CU_ASSERT_PTR_NULL(stepaf_table_get(&table, 100));
    CU_ASSERT_PTR_NULL(stepaf_table_get(&table, UINT32_MAX));
    stepaf_table_free(&table);
    CU_ASSERT_PTR_NULL(stepaf_table_get(&table, 0));
}

/* Against a model, by a fixed sequence of random steps. */
static void random_steps_agree_with_a_model(void)
{
    enum { MODEL = 64 };
    struct stepaf_table table = {0};
    void *model[MODEL] = {NULL};
    uint32_t random = 1, used = 0;
    int wrong = 0;

    for (int step = 0; step < 20000; step++) {
        random = random * 1664525u + 1013904223u;
        uint32_t at = (random >> 16) % MODEL, index;
        if (random >> 31) {
            bool added = stepaf_table_add(&table, &model[at], MODEL, &index);
            wrong += added != (used < MODEL);
            if (added) {
                wrong += index >= MODEL || model[index] != NULL;
                model[index] = &model[at];
                used++;
            }
        } else if (model[at]) {
            stepaf_table_remove(&table, at);
            model[at] = NULL;
            used--;
        }
        for (uint32_t i = 0; i < MODEL; i++)
            wrong += stepaf_table_get(&table, i) != model[i];
    }
    CU_ASSERT_EQUAL(wrong, 0);
    stepaf_table_free(&table);
}

static void handles_carry_four_numbers(void)
{
    static const uint32_t generations[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff};
    static const uint32_t indices[] = {0, 1, (1u << STEPAF_HANDLE_INDEX_BITS) - 1};

    for (uint32_t kind = 1; kind <= STEPAF_HANDLE_RESPONSE; kind++)
        for (uint32_t context = 0; context < STEPAF_HANDLE_CONTEXTS; context += 9)
            for (int g = 0; g < 5; g++)
                for (int i = 0; i < 3; i++) {
                    void *handle = stepaf_handle_make((enum stepaf_handle_kind)kind, context,
                                                      indices[i], generations[g]);
                    CU_ASSERT_PTR_NOT_NULL(handle);
                    CU_ASSERT_EQUAL(stepaf_handle_kind(handle), kind);
                    CU_ASSERT_EQUAL(stepaf_handle_context(handle), context);
                    CU_ASSERT_EQUAL(stepaf_handle_index(handle), indices[i]);
                    CU_ASSERT_EQUAL(stepaf_handle_generation(handle), generations[g]);
                }
}

/* One of every kind, live: the attention rank's operation, the FFN rank's batch. */
struct live {
    struct fake_job *attention;
    struct fake_job *ffn;
    stepaf_plan_h plan;
    stepaf_request_h request;
    stepaf_batch_h batch;
};

static void make_batch(struct live *live)
{
    struct fake_job *ffn = live->ffn;
    struct stepaf_msg plan = fake_msg(ffn, STEPAF_MSG_PLAN, 0, 0, 0);
    struct stepaf_msg start = fake_msg(ffn, STEPAF_MSG_START, 0, 0, 0);
    int n;

    plan.word[2] = 1; /* depth; no tensors */
    fake_tell(ffn, 0, &plan);
    fake_tell(ffn, 0, &start);
    CU_ASSERT_EQUAL_FATAL(stepaf_recv(ffn->handle, STEPAF_FROM_ANY, 0, 0, &live->batch, 1, &n), 0);
}

static void make_operation(struct live *live)
{
    stepaf_tensor_t push = {.key = 1};

    CU_ASSERT_EQUAL_FATAL(
        stepaf_plan_create(live->attention->handle, &push, 1, NULL, 0, 0, &live->plan), 0);
    CU_ASSERT_EQUAL_FATAL(fake_commit(live->attention, live->ffn), 0);
    CU_ASSERT_EQUAL_FATAL(stepaf_start(live->plan, &live->request), 0);
}

static struct live make_live(void)
{
    struct live live = {fake_open(STEPAF_ATTENTION, 1, 1), fake_open(STEPAF_FFN, 1, 1), NULL, NULL,
                        NULL};

    fake_key(live.attention, live.ffn, 1, STEPAF_PUSH, 64, 1);
    make_operation(&live);
    CU_ASSERT_EQUAL_FATAL(fake_commit(live.ffn, live.attention), 0);
    make_batch(&live);
    return live;
}

static void end_live(struct live *live)
{
    fake_close(live->attention);
    fake_close(live->ffn);
}

/* Count the calls that do not refuse @a handle, but for those of @a kind. */
static int taken_by_others(void *handle, int kind)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_batch_info_t batch = {.size = sizeof(batch)};
    int wrong = 0;

    if (kind != STEPAF_HANDLE_CONTEXT) {
        wrong += stepaf_progress(handle) != STEPAF_ERR_HANDLE;
        wrong += stepaf_commit(handle) != STEPAF_ERR_HANDLE;
        wrong += stepaf_epoch(handle) != 0;
        wrong += stepaf_role(handle) != STEPAF_ROLE_AUTO;
        wrong += stepaf_transport_name(handle, 0) != NULL;
        stepaf_finalize(handle);
    }
    if (kind != STEPAF_HANDLE_PLAN) {
        wrong += stepaf_plan_depth(handle) != 0;
        wrong += stepaf_plan_destroy(handle) != STEPAF_ERR_HANDLE;
    }
    if (kind != STEPAF_HANDLE_OPERATION) {
        wrong += stepaf_request_peer(handle, 0) != STEPAF_ERR_HANDLE;
        wrong += stepaf_request_slot(handle) != -1;
    }
    if (kind != STEPAF_HANDLE_OPERATION && kind != STEPAF_HANDLE_RESPONSE) {
        wrong += stepaf_test(handle) != STEPAF_ERR_HANDLE;
        wrong += stepaf_request_sent(handle) != STEPAF_ERR_HANDLE;
        wrong += stepaf_cancel(handle) != STEPAF_ERR_HANDLE;
    }
    if (kind != STEPAF_HANDLE_BATCH) {
        wrong += stepaf_batch_query(handle, &batch) != STEPAF_ERR_HANDLE;
        wrong += stepaf_batch_tensor(handle, 0, &info) != STEPAF_ERR_HANDLE;
        wrong += stepaf_release(handle) != STEPAF_ERR_HANDLE;
    }
    return wrong;
}

static void a_handle_of_one_kind_is_none_of_another(void)
{
    struct live live = make_live();

    CU_ASSERT_EQUAL(taken_by_others(live.attention->handle, STEPAF_HANDLE_CONTEXT), 0);
    CU_ASSERT_EQUAL(taken_by_others(live.plan, STEPAF_HANDLE_PLAN), 0);
    CU_ASSERT_EQUAL(taken_by_others(live.request, STEPAF_HANDLE_OPERATION), 0);
    CU_ASSERT_EQUAL(taken_by_others(live.batch, STEPAF_HANDLE_BATCH), 0);
    CU_ASSERT_EQUAL(taken_by_others(NULL, 0), 0);
    end_live(&live);
}

/* Every bit of every live handle turned but those of the kind, since kinds are numbered apart; and
 * other rubbish: nothing takes it. */
static void rubbish_is_refused(void)
{
    struct live live = make_live();
    void *handles[] = {live.attention->handle, live.ffn->handle, live.plan, live.request,
                       live.batch};
    uint64_t random = 88172645463325252u;
    int wrong = 0;

    for (int bit = 0; bit < 64; bit++)
        for (int i = 0; i < 5 && (bit < 28 || bit >= 32); i++)
            wrong += taken_by_others((void *)((uintptr_t)handles[i] ^ (uintptr_t)1 << bit), 0);
    for (int i = 0; i < 20000; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        wrong += taken_by_others((void *)(uintptr_t)(random | (uint64_t)1 << 63), 0);
    }
    wrong += taken_by_others((void *)UINTPTR_MAX, 0);
    wrong += taken_by_others(&live, 0);
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_EQUAL(stepaf_epoch(live.attention->handle), 1);
    CU_ASSERT_EQUAL(stepaf_plan_depth(live.plan), 1);
    end_live(&live);
}

static void handles_end_with_their_objects(void)
{
    struct live live = make_live();
    struct stepaf_msg release = fake_msg(live.attention, STEPAF_MSG_RELEASE, 0, 0, 0);
    stepaf_request_h old = live.request, next;
    stepaf_batch_info_t info = {.size = sizeof(info)};

    fake_tell(live.attention, 0, &release);
    CU_ASSERT_EQUAL(stepaf_test(old), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_start(live.plan, &next), STEPAF_OK);
    CU_ASSERT_PTR_NOT_EQUAL(next, old);
    CU_ASSERT_EQUAL(stepaf_test(old), STEPAF_ERR_HANDLE);
    CU_ASSERT_EQUAL(stepaf_test(next), STEPAF_INPROGRESS);
    release.seq = 1;
    fake_tell(live.attention, 0, &release);
    CU_ASSERT_EQUAL(stepaf_plan_destroy(live.plan), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_plan_destroy(live.plan), STEPAF_ERR_HANDLE);
    CU_ASSERT_EQUAL(stepaf_test(next), STEPAF_ERR_HANDLE);

    CU_ASSERT_EQUAL(stepaf_release(live.batch), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_release(live.batch), STEPAF_ERR_HANDLE);
    CU_ASSERT_EQUAL(stepaf_batch_query(live.batch, &info), STEPAF_ERR_HANDLE);

    stepaf_context_h context = live.attention->handle;
    end_live(&live);
    CU_ASSERT_EQUAL(stepaf_progress(context), STEPAF_ERR_HANDLE);
    struct fake_job *again = fake_open(STEPAF_ATTENTION, 1, 1);
    CU_ASSERT_PTR_NOT_EQUAL(again->handle, context);
    CU_ASSERT_EQUAL(stepaf_progress(context), STEPAF_ERR_HANDLE);
    fake_close(again);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"numbers are dense and reused", numbers_are_dense_and_reused},
        {"random steps agree with a model", random_steps_agree_with_a_model},
        {"handles carry four numbers", handles_carry_four_numbers},
        {"a handle of one kind is none of another", a_handle_of_one_kind_is_none_of_another},
        {"rubbish is refused", rubbish_is_refused},
        {"handles end with their objects", handles_end_with_their_objects},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
