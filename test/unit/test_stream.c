/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans whose peers are reached directly, on a GPU that is made up: what is enqueued where, and
 * what becomes of a plan of which a part was refused. */
#include "cuda_fake.h"
#include "engine/map.h"
#include "engine/stream.h"
#include "fake.h"
#include "unit.h"

enum {
    PUSH = 2000000,
    MORE = 5008,
    PULL = 300000,
    DEPTH = 2,
    HALF_A_RECEIVE = 6 /* enter, capturing?, enter, gate, enter, unpack */
};

static struct fake_job *job, *other;
static stepaf_plan_h plan;
static int stream, n_push = 1;

static void key(uint64_t id, stepaf_direction_t direction, size_t bytes)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DIRECTION | STEPAF_KEY_MAX_BYTES |
                                                STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .direction = direction,
                                  .max_bytes = bytes,
                                  .depth = DEPTH,
                                  .mem_kind = STEPAF_MEM_CUDA};

    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(job->handle, id, &params), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(other->handle, id, &params), STEPAF_OK);
}

static stepaf_plan_h make(struct fake_job *its)
{
    stepaf_tensor_t push[2] = {{.key = 1}, {.key = 3}}, pull = {.key = 2, .bytes = PULL};
    stepaf_plan_h made = NULL;
    uint8_t *data;

    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(its->handle, PUSH + MORE + (size_t)DEPTH * PULL,
                                       STEPAF_MEM_CUDA, (void **)&data),
                          STEPAF_OK);
    pull.data = data + PUSH + MORE;
    if (its->ctx->role == STEPAF_ATTENTION) {
        push[0].data = data;
        push[0].bytes = PUSH;
        push[1].data = data + PUSH;
        push[1].bytes = MORE;
    }
    CU_ASSERT_EQUAL_FATAL(
        stepaf_plan_create(its->handle, push, n_push, &pull, 1, STEPAF_PLAN_STREAM, &made),
        STEPAF_OK);
    return made;
}

/* A rank of @a role and its only peer; not committed. */
static void begin(stepaf_role_t role)
{
    cuda_fake_begin();
    job = fake_open(role, 1, 1);
    other = fake_open(role == STEPAF_FFN ? STEPAF_ATTENTION : STEPAF_FFN, 1, 1);
    key(1, STEPAF_PUSH, PUSH);
    key(2, STEPAF_PULL, PULL);
    if (n_push > 1)
        key(3, STEPAF_PUSH, MORE);
    plan = make(job);
    (void)make(other);
}

static stepaf_status_t commit(void)
{
    fake_pair(job, other);
    CU_ASSERT_EQUAL_FATAL(stepaf_streams_prepare(other->ctx), STEPAF_OK);
    return fake_commit(job, other);
}

static void end(void)
{
    fake_close(job);
    fake_close(other);
    CU_ASSERT_EQUAL(cuda_fake.n_held, 0);
    CU_ASSERT_EQUAL(cuda_fake_count(), 0);
    cuda_fake_end();
}

static struct stepaf_stream *stream_of_plan(void)
{
    return ((struct stepaf_plan_obj *)stepaf_table_get(&job->ctx->plans, 0))->stream;
}

/* A wait of the host's takes operations before it along, on a stream of the library's: behind what
 * the user's stream held when the request was made. */
static void the_hosts_wait_comes_behind_the_start(void)
{
    stepaf_request_h request = NULL;

    begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    for (int n = 0; n < DEPTH; n++)
        CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, NULL), STEPAF_OK);
    for (int n = 0; n < DEPTH; n++)
        CU_ASSERT_EQUAL(stepaf_wait_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, &request), STEPAF_OK);
    int n_launches = cuda_fake.n_launches;
    CU_ASSERT_EQUAL(cuda_fake.n_waits, 0);
    CU_ASSERT_EQUAL(stepaf_wait(request, -1), STEPAF_OK);
    CU_ASSERT_FATAL(cuda_fake.n_waits > 0);
    CU_ASSERT_PTR_EQUAL(cuda_fake.waits[0].event, stream_of_plan()->sent[1]);
    CU_ASSERT_PTR_EQUAL(cuda_fake.waits[0].stream, cuda_fake.launched.hStream);
    CU_ASSERT_PTR_NOT_EQUAL(cuda_fake.waits[0].stream, &stream);
    CU_ASSERT_EQUAL(cuda_fake.waits[0].n_launches, n_launches);
    CU_ASSERT_EQUAL(cuda_fake.n_launches, n_launches + 4); /* two gates, and what unpacks */
    CU_ASSERT_EQUAL(stepaf_wait_on_stream(plan, &stream), STEPAF_ERR_STATE);
    end();
}

/* The library's own waits are in a stream that the user's does not come behind: until they are over a
 * slot cannot be used again, whether its operation has a request or was taken along. */
static void a_slot_is_free_when_the_hosts_wait_is_over(void)
{
    stepaf_request_h first = NULL, second = NULL;

    for (int known = 0; known < 2; known++) {
        begin(STEPAF_ATTENTION);
        CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, known ? &first : NULL), 0);
        CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, &second), STEPAF_OK);
        cuda_fake.busy = true;
        CU_ASSERT_EQUAL(stepaf_test(second), STEPAF_INPROGRESS);
        int n_launches = cuda_fake.n_launches;
        CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, NULL), STEPAF_ERR_WOULD_BLOCK);
        CU_ASSERT_EQUAL(cuda_fake.n_launches, n_launches);
        cuda_fake.busy = false;
        CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, NULL), STEPAF_OK);
        CU_ASSERT_EQUAL(job->ctx->n_stream_requests, 0);
        CU_ASSERT_EQUAL(stepaf_test(second), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_wait_on_stream(plan, &stream), STEPAF_OK);
        end();
    }
}

/* Nothing more is enqueued, and what is there already ends, until the next commit. */
static void expect_over(stepaf_status_t (*call)(stepaf_plan_h, stepaf_stream_t))
{
    int n_launches = cuda_fake.n_launches;

    cuda_fake.fail_at = 0;
    CU_ASSERT_EQUAL(stream_of_plan()->watch->abort, 1);
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "CUDA has refused a part of an operation");
    CU_ASSERT_EQUAL(call(plan, &stream), STEPAF_ERR_TRANSPORT);
    CU_ASSERT_EQUAL(cuda_fake.n_launches, n_launches);
    CU_ASSERT_EQUAL(commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_OK);
}

static void half_a_wait_ends_the_plan(void)
{
    stepaf_request_h request = NULL;

    begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, &request), STEPAF_OK);
    cuda_fake.n_calls = 0;
    cuda_fake.fail_at = HALF_A_RECEIVE;
    CU_ASSERT_EQUAL(stepaf_wait_on_stream(plan, &stream), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
    cuda_fake.fail_at = 0;
    CU_ASSERT_EQUAL(stepaf_wait(request, -1), STEPAF_ERR_TRANSPORT);
    expect_over(stepaf_wait_on_stream);
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_wait_on_stream(plan, &stream), STEPAF_OK);
    end();
}

static void nothing_is_enqueued_before_the_commit(void)
{
    begin(STEPAF_FFN);
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_ERR_STATE);
    end();
    begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, NULL), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stepaf_wait_on_stream(plan, &stream), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    job->ctx->state = STEPAF_CTX_BROKEN; /* nor after one that has failed halfway */
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, NULL), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(cuda_fake.n_launches, 0);
    end();
}

static void half_a_receive_ends_the_plan(void)
{
    begin(STEPAF_FFN);
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    cuda_fake.n_calls = 0;
    cuda_fake.fail_at = HALF_A_RECEIVE;
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_ERR_TRANSPORT);
    expect_over(stepaf_recv_on_stream);
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
    end();
}

/* What is replayed looks into its inlets before it knows that they are of an earlier commit; others are
 * given back. */
static void inlets_that_were_captured_stay(void)
{
    for (int captured = 0; captured < 2; captured++) {
        begin(STEPAF_FFN);
        CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
        const uint8_t *inlets = job->ctx->streams->inlets;
        cuda_fake.capture =
            captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
        CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
        cuda_fake.capture = CU_STREAM_CAPTURE_STATUS_NONE;
        CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK); /* does not undo it */
        CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
        key(4, STEPAF_PUSH, 1);
        CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
        CU_ASSERT_PTR_EQUAL(job->ctx->streams->before->inlets, captured ? inlets : NULL);
        key(5, STEPAF_PUSH, 1);
        CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK); /* nothing was captured after that one */
        CU_ASSERT_PTR_NULL(job->ctx->streams->before->inlets);
        end(); /* where all has to have been given back */
    }
}

/* Of an operation that is refused as a whole nothing is left. */
static void a_launch_that_fails_counts_nothing(void)
{
    begin(STEPAF_FFN);
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    cuda_fake.n_calls = 0;
    cuda_fake.fail_at = HALF_A_RECEIVE - 2;
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_ERR_TRANSPORT);
    cuda_fake.fail_at = 0;
    CU_ASSERT_EQUAL(stepaf_plan_status(plan), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_recv_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_respond_on_stream(plan, NULL, &stream), STEPAF_OK);
    end();
}

/* An operation that is under way, without the request that was asked for. */
static void a_start_without_its_request_ends_the_plan(void)
{
    stepaf_request_h request = NULL;

    begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    cuda_fake.n_calls = 0;
    cuda_fake.fail_at = 6; /* enter, capturing?, enter, send, enter, the event */
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, &request), STEPAF_ERR_TRANSPORT);
    CU_ASSERT_PTR_NULL(request);
    expect_over(stepaf_wait_on_stream);
    end();
}

/* Each launch takes the fewer blocks the more plans may be under way beside it. */
static void plans_share_the_blocks(void)
{
    static const unsigned blocks[] = {1056, 528, 264, 264};

    for (int n = 0; n < 4; n++) {
        begin(STEPAF_ATTENTION);
        for (int i = 0; i < n; i++) {
            (void)make(job);
            (void)make(other);
        }
        CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, NULL), STEPAF_OK);
        CU_ASSERT_EQUAL(cuda_fake.launched.gridDimX, blocks[n]);
        end();
    }
}

static void expect_word(int slot, unsigned i, uint32_t bytes, uint32_t mark)
{
    const struct stepaf_lane *lanes = stream_of_plan()->send[slot].flow.lanes;
    const struct stepaf_lane *lane = &lanes[cuda_fake.n_words == 1 ? n_push - 1 : (int)i];

    CU_ASSERT_EQUAL(cuda_fake.words[2 * i], (uintptr_t)lane->head + STEPAF_HEAD_TELLS + 8);
    CU_ASSERT_EQUAL(cuda_fake.words[2 * i + 1], (uint64_t)bytes << 32 | mark);
}

/* What copy engines have written for a peer is told of at once, where no size has changed; both ends
 * agree where. */
static void one_word_tells_of_a_peers_copies(void)
{
    stepaf_tensor_t push[2] = {{.key = 1, .bytes = PUSH}, {.key = 3, .bytes = MORE}};
    stepaf_start_params_t params = {.push = push, .n_push = 2};

    n_push = 2;
    setenv("STEPAF_CUDA_ENGINE", "ce", 1);
    begin(STEPAF_ATTENTION);
    unsetenv("STEPAF_CUDA_ENGINE");
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, NULL, &stream, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(cuda_fake.n_words, 1);
    expect_word(0, 0, MORE, STEPAF_TOLD_ALL);
    CU_ASSERT_EQUAL(stepaf_wait_on_stream(plan, &stream), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, &params, &stream, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(cuda_fake.n_words, 1);
    expect_word(1, 0, MORE, STEPAF_TOLD_ALL);
    CU_ASSERT_EQUAL(stepaf_wait_on_stream(plan, &stream), STEPAF_OK);
    push[0].bytes = PUSH - 1;
    CU_ASSERT_EQUAL(stepaf_start_on_stream(plan, &params, &stream, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(cuda_fake.n_words, 2);
    expect_word(0, 0, PUSH - 1, STEPAF_TOLD);
    expect_word(0, 1, MORE, STEPAF_TOLD);
    end();
    n_push = 1;
}

/* As above, seen from the end that receives, whatever copies there. */
static void the_receiver_knows_what_one_word_tells_of(void)
{
    n_push = 2;
    for (int copies = 0; copies < 2; copies++) {
        setenv("STEPAF_CUDA_ENGINE", "ce", 1); /* its own; in auto these would be sent by pieces */
        begin(STEPAF_FFN);
        unsetenv("STEPAF_CUDA_ENGINE");
        if (!copies)
            other->ctx->env.cuda_engine = STEPAF_ENV_ENGINE_SM;
        CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
        const struct stepaf_lane *lanes = stream_of_plan()->receive[0].flow.lanes;
        for (int i = 0; i < n_push; i++) {
            CU_ASSERT_EQUAL(lanes[i].way, STEPAF_WAY_PLACE);
            CU_ASSERT_EQUAL(lanes[i].copied, copies ? n_push : 0);
            CU_ASSERT_EQUAL(lanes[i].planned, i ? MORE : PUSH);
        }
        end();
    }
    n_push = 1;
}

/* However long a plan goes on: a head that a copy engine has told of is not taken for a count. */
static void no_operations_stamp_is_the_one_that_counts_nothing(void)
{
    static const uint32_t ends[] = {0x7fffffff, 0xffffffff};

    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t n = ends[i] - 1 + k;
            CU_ASSERT((uint32_t)stepaf_stamp(7, n) < STEPAF_TOLD_ALL);
            CU_ASSERT_NOT_EQUAL(stepaf_stamp(7, n), stepaf_stamp(7, n - 1));
            CU_ASSERT_EQUAL(stepaf_stamp(7, n) >> 32, 7);
        }
    CU_ASSERT_EQUAL(stepaf_stamp(7, 1), UINT64_C(7) << 32 | 1);
}

/* Beside the link, which hosts use; and only where there are stream plans. */
static void the_map_names_what_streams_write_to(void)
{
    struct stepaf_map_part part;

    begin(STEPAF_ATTENTION);
    stepaf_map_part_make(job->ctx, false, &part);
    CU_ASSERT_EQUAL(part.n_ways, 0);
    stepaf_map_part_free(&part);
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    snprintf(job->ctx->peers[0].link->name, STEPAF_LINK_NAME, "shm;a-name-that-is-quite-long");
    stepaf_map_part_make(job->ctx, false, &part);
    CU_ASSERT_EQUAL_FATAL(part.n_ways, 1);
    CU_ASSERT_STRING_EQUAL(part.ways[0].name, "shm;a-name-that-is-qui,cuda_ipc");
    stepaf_map_part_free(&part);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the host's wait comes behind the start", the_hosts_wait_comes_behind_the_start},
        {"a slot is free when the host's wait is over", a_slot_is_free_when_the_hosts_wait_is_over},
        {"nothing is enqueued before the commit", nothing_is_enqueued_before_the_commit},
        {"half a wait ends the plan", half_a_wait_ends_the_plan},
        {"half a receive ends the plan", half_a_receive_ends_the_plan},
        {"inlets that were captured stay", inlets_that_were_captured_stay},
        {"a launch that fails counts nothing", a_launch_that_fails_counts_nothing},
        {"a start without its request ends the plan", a_start_without_its_request_ends_the_plan},
        {"plans share the blocks", plans_share_the_blocks},
        {"one word tells of a peer's copies", one_word_tells_of_a_peers_copies},
        {"the receiver knows what one word tells of", the_receiver_knows_what_one_word_tells_of},
        {"no operation's stamp counts nothing", no_operations_stamp_is_the_one_that_counts_nothing},
        {"the map names what streams write to", the_map_names_what_streams_write_to},
        CU_TEST_INFO_NULL,
    };
    return unit_run("stream", tests);
}
