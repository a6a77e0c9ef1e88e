/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of one result to several batches: what is wrong with one of them moves nobody else's
 * rows. */
#include "batches.h"

enum { OTHER_PLAN = 6, N = 3 };

static stepaf_status_t results[N];

/* Three batches whose rows are pushed: 3 of rank 0, 4 of rank 1, 5 of rank 0. */
static void arrive(stepaf_batch_h *batches)
{
    static const uint32_t from[N] = {0, 1, 0}, slot[N] = {0, 0, 1}, rows[N] = {3, 4, 5};

    begin();
    for (int i = 0; i < N; i++) {
        struct stepaf_msg msg = start_msg(slot[i], slot[i]);
        msg.n = 1;
        msg.word[STEPAF_MSG_SIZES] = rows[i];
        msg.n_words = STEPAF_MSG_SIZES + 1;
        EXPECT_TAKEN(job, from[i], &msg);
        batches[i] = take();
    }
}

static stepaf_status_t deal(const stepaf_batch_h *batches, const uint32_t *rows, size_t bytes)
{
    stepaf_tensor_t tensor = {PULLED, memory, bytes};

    for (int i = 0; i < N; i++)
        results[i] = STEPAF_INPROGRESS;
    return stepaf_respond_many(batches, N, &tensor, 1, rows, STEPAF_RESPOND_RELEASE, results);
}

/* The @a i-th answer that has left is @a bytes bytes of the result, from @a at. */
static void expect_rows(unsigned i, uint32_t peer, size_t at, uint32_t bytes)
{
    const struct fake_record *record = &job->records[i];

    CU_ASSERT_FATAL(i < job->n_records);
    CU_ASSERT_EQUAL(record->msg.type, STEPAF_MSG_RESPONSE);
    CU_ASSERT_EQUAL(record->peer, peer);
    CU_ASSERT_EQUAL(record->xfer[0].bytes, bytes);
    CU_ASSERT_PTR_EQUAL(record->xfer[0].src, memory + at);
}

static void rows_follow_each_other(void)
{
    static const uint32_t rows[N] = {10, 0, 20};
    stepaf_batch_h batches[N];

    arrive(batches);
    CU_ASSERT_EQUAL(deal(batches, NULL, 11), STEPAF_ERR_SIZE);
    CU_ASSERT_EQUAL(job->n_records, 0);
    CU_ASSERT_EQUAL(deal(batches, NULL, 12), STEPAF_OK);
    expect_rows(0, 0, 0, 3);
    expect_rows(1, 1, 3, 4);
    expect_rows(2, 0, 7, 5);
    end();

    arrive(batches);
    CU_ASSERT_EQUAL(deal(batches, rows, BYTES), STEPAF_OK);
    expect_rows(0, 0, 0, 10);
    expect_rows(1, 1, 10, 0);
    expect_rows(2, 0, 10, 20);
    end();
}

/* As STEPAF_RECV_SKIP_LOST gives it for a rank that is lost. */
static void rows_of_no_batch_are_passed_by(void)
{
    static const uint32_t rows[N] = {3, 4, 5}, endless[N] = {3, UINT32_MAX, 5};
    const stepaf_error_t earlier = {.status = STEPAF_ERR_KEY};
    stepaf_batch_h batches[N];

    for (int none = 0; none < N; none++) {
        size_t at[N] = {0, 3, 7};
        unsigned sent = 0;
        arrive(batches);
        CU_ASSERT_EQUAL(stepaf_release(batches[none]), STEPAF_OK);
        fake_forget(job);
        batches[none] = NULL;
        CU_ASSERT_EQUAL(stepaf_error_raise(&earlier), STEPAF_ERR_KEY);
        CU_ASSERT_EQUAL(deal(batches, rows, 12), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_last_error()->status, STEPAF_ERR_KEY);
        for (int i = 0; i < N; i++) {
            CU_ASSERT_EQUAL(results[i], i == none ? STEPAF_ERR_HANDLE : STEPAF_OK);
            if (i != none)
                expect_rows(sent++, i % 2, at[i], rows[i]);
        }
        CU_ASSERT_EQUAL(job->n_records, 2);
        end();
    }

    /* Its rows need not be there, those behind them must. */
    arrive(batches);
    CU_ASSERT_EQUAL(stepaf_release(batches[1]), STEPAF_OK);
    fake_forget(job);
    batches[1] = NULL;
    CU_ASSERT_EQUAL(deal(batches, rows, 11), STEPAF_ERR_SIZE);
    CU_ASSERT_EQUAL(deal(batches, endless, BYTES), STEPAF_ERR_SIZE);
    CU_ASSERT_EQUAL(job->n_records, 0);
    /* Without rows it has none. */
    CU_ASSERT_EQUAL(deal(batches, NULL, 8), STEPAF_OK);
    expect_rows(0, 0, 0, 3);
    expect_rows(1, 0, 3, 5);
    end();

    arrive(batches);
    CU_ASSERT_EQUAL(stepaf_release(batches[2]), STEPAF_OK);
    fake_forget(job);
    batches[2] = NULL;
    CU_ASSERT_EQUAL(deal(batches, rows, 7), STEPAF_OK);
    CU_ASSERT_EQUAL(job->n_records, 2);
    end();
}

/* How many rows it had cannot be known any more. */
static void a_released_batch_has_rows_only_if_they_are_given(void)
{
    static const uint32_t rows[N] = {3, 4, 5};
    stepaf_batch_h batches[N];

    arrive(batches);
    CU_ASSERT_EQUAL(stepaf_release(batches[1]), STEPAF_OK);
    fake_forget(job);
    uint64_t digest = state_digest(job->ctx);
    CU_ASSERT_EQUAL(deal(batches, NULL, BYTES), STEPAF_ERR_HANDLE);
    UNIT_CONTAINS(stepaf_last_error()->text, "batch 1");
    CU_ASSERT_EQUAL(state_digest(job->ctx), digest);
    CU_ASSERT_EQUAL(job->n_records, 0);
    CU_ASSERT_EQUAL(deal(batches, rows, BYTES), STEPAF_ERR_HANDLE);
    CU_ASSERT_EQUAL(results[1], STEPAF_ERR_HANDLE);
    expect_rows(0, 0, 0, 3);
    expect_rows(1, 0, 7, 5);
    end();
}

/* Rank 1 has another plan, which expects two answers. */
static stepaf_batch_h arrive_other(void)
{
    struct stepaf_msg msg = fake_msg(job, STEPAF_MSG_PLAN, OTHER_PLAN, 0, 0);

    msg.word[0] = 1;
    msg.word[1] = 2;
    msg.word[2] = DEPTH;
    EXPECT_TAKEN(job, 1, &msg);
    msg = fake_msg(job, STEPAF_MSG_TENSOR, OTHER_PLAN, 0, 0);
    msg.word[0] = PUSHED;
    msg.word[2] = BYTES;
    EXPECT_TAKEN(job, 1, &msg);
    for (uint32_t i = 0; i < 2; i++) {
        msg = fake_msg(job, STEPAF_MSG_TENSOR, OTHER_PLAN, i, 0);
        msg.flags = STEPAF_MSG_PULL_SIDE;
        msg.word[0] = PULLED;
        msg.word[3] = counterpart->ctx->memory.regions[0]->mem.id;
        msg.word[4] = 64;
        msg.word[6] = 200;
        EXPECT_TAKEN(job, 1, &msg);
    }
    msg = fake_msg(job, STEPAF_MSG_START, OTHER_PLAN, 0, 0);
    msg.n = 1;
    msg.word[STEPAF_MSG_SIZES] = 6;
    EXPECT_TAKEN(job, 1, &msg);
    return take();
}

static void a_batch_that_expects_other_tensors_keeps_its_rows(void)
{
    static const uint32_t rows[N] = {3, 2, 5};
    stepaf_batch_h batches[N], first[N];

    for (int given = 0; given < 2; given++) {
        arrive(batches);
        CU_ASSERT_EQUAL(stepaf_release(batches[1]), STEPAF_OK);
        batches[1] = arrive_other();
        fake_forget(job);
        CU_ASSERT_EQUAL(deal(batches, given ? rows : NULL, BYTES), STEPAF_ERR_INVALID);
        CU_ASSERT(results[0] == STEPAF_OK && results[2] == STEPAF_OK);
        CU_ASSERT_EQUAL(results[1], STEPAF_ERR_INVALID);
        expect_rows(0, 0, 0, 3);
        expect_rows(1, 0, given ? 5 : 9, 5);
        end();
    }

    arrive(batches); /* also where it is the first, of which nobody learns how long a row is */
    CU_ASSERT_EQUAL(stepaf_release(batches[1]), STEPAF_OK);
    first[0] = arrive_other();
    first[1] = batches[0];
    first[2] = batches[2];
    fake_forget(job);
    CU_ASSERT_EQUAL(deal(first, NULL, BYTES), STEPAF_ERR_INVALID);
    expect_rows(0, 0, 6, 3);
    expect_rows(1, 0, 9, 5);
    end();
}

static void a_lost_ranks_batch_keeps_its_rows(void)
{
    stepaf_batch_h batches[N];

    arrive(batches);
    job->ctx->up.lost(&job->ctx->up, &fake_link(job, 1)->base, "the test says so");
    fake_forget(job);
    CU_ASSERT_EQUAL(deal(batches, NULL, BYTES), STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(results[1], STEPAF_ERR_PEER_LOST);
    expect_rows(0, 0, 0, 3);
    expect_rows(1, 0, 7, 5);
    end();
}

static void none_of_them_is_a_batch(void)
{
    stepaf_batch_h none[N] = {NULL};

    begin();
    CU_ASSERT_EQUAL(deal(none, NULL, BYTES), STEPAF_OK);
    for (int i = 0; i < N; i++)
        CU_ASSERT_EQUAL(results[i], STEPAF_ERR_HANDLE);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"rows follow each other", rows_follow_each_other},
        {"rows of no batch are passed by", rows_of_no_batch_are_passed_by},
        {"a released batch has rows only if they are given",
         a_released_batch_has_rows_only_if_they_are_given},
        {"a batch that expects other tensors keeps its rows",
         a_batch_that_expects_other_tensors_keeps_its_rows},
        {"a lost rank's batch keeps its rows", a_lost_ranks_batch_keeps_its_rows},
        {"none of them is a batch", none_of_them_is_a_batch},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
