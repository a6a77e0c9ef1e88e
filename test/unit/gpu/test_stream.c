/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans whose peers are reached directly, on a GPU that is made up: what is enqueued where,
 * and what becomes of a plan of which a part was refused. */
#include <stdlib.h>

#include "core/peer.h"
#include "map/map.h"
#include "stream_job.h"
#include "unit.h"

/* Nothing more is enqueued, and what is there already ends, until the next commit. */
static void expect_over(stepaf_status_t (*call)(stepaf_plan_h, stepaf_stream_t))
{
    int n_launches = cpu_device.n_launches;

    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(stream_job_stream()->watch->abort, 1);
    CU_ASSERT_EQUAL(stepaf_plan_status(stream_job.plan), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "CUDA has refused a part of an operation");
    CU_ASSERT_EQUAL(call(stream_job.plan, &stream_job.stream), STEPAF_ERR_TRANSPORT);
    CU_ASSERT_EQUAL(cpu_device.n_launches, n_launches);
    CU_ASSERT_EQUAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_plan_status(stream_job.plan), STEPAF_OK);
}

static void half_a_wait_ends_the_plan(void)
{
    stepaf_request_h request = NULL;

    stream_job_begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(NULL, &request), STEPAF_OK);
    cpu_device.n_calls = 0;
    cpu_device.fail_at = STREAM_HALF;
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(stepaf_wait(request, -1), STEPAF_ERR_TRANSPORT);
    expect_over(stepaf_wait_on_stream);
    CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
    stream_job_end();
}

static void nothing_is_enqueued_before_the_commit(void)
{
    stream_job_begin(STEPAF_FFN);
    CU_ASSERT_EQUAL(stream_job_recv(), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stream_job_respond(), STEPAF_ERR_STATE);
    stream_job_end();
    stream_job_begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    stream_job.job->ctx->state = STEPAF_CTX_BROKEN; /* nor after one that has failed halfway */
    CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_ERR_STATE);
    CU_ASSERT_EQUAL(cpu_device.n_launches, 0);
    stream_job_end();
}

static void half_a_receive_ends_the_plan(void)
{
    stream_job_begin(STEPAF_FFN);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    cpu_device.n_calls = 0;
    cpu_device.fail_at = STREAM_HALF;
    CU_ASSERT_EQUAL(stream_job_recv(), STEPAF_ERR_TRANSPORT);
    expect_over(stepaf_recv_on_stream);
    CU_ASSERT_EQUAL(stream_job_recv(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_respond(), STEPAF_OK);
    stream_job_end();
}

/* What is replayed looks into its mailboxes before it knows that they are of an earlier commit;
 * others are given back. */
static void mailboxes_that_were_captured_stay(void)
{
    for (int captured = 0; captured < 2; captured++) {
        stream_job_begin(STEPAF_FFN);
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        const uint8_t *mailboxes = stream_job.job->ctx->gpu.streams->mailboxes;
        cpu_device.capturing = captured;
        CU_ASSERT_EQUAL(stream_job_recv(), STEPAF_OK);
        CU_ASSERT_EQUAL(stream_job_respond(), STEPAF_OK);
        cpu_device.capturing = false;
        CU_ASSERT_EQUAL(stream_job_recv(), STEPAF_OK); /* does not undo it */
        CU_ASSERT_EQUAL(stream_job_respond(), STEPAF_OK);
        stream_job_key(4, STEPAF_PUSH, 1);
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        const struct stepaf_streams *before = stream_job.job->ctx->gpu.streams->before;
        CU_ASSERT_PTR_EQUAL(before ? before->mailboxes : NULL, captured ? mailboxes : NULL);
        CU_ASSERT_EQUAL(before != NULL, captured != 0);
        stream_job_key(5, STEPAF_PUSH, 1);
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(),
                              STEPAF_OK); /* nothing was captured after that one */
        CU_ASSERT_PTR_EQUAL(stream_job.job->ctx->gpu.streams->before, before);
        stream_job_end(); /* where all has to have been given back */
    }
}

/* Of an operation that is refused as a whole nothing is left. */
static void a_launch_that_fails_counts_nothing(void)
{
    stream_job_begin(STEPAF_FFN);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    cpu_device.n_calls = 0;
    cpu_device.fail_at = STREAM_HALF - 1;
    CU_ASSERT_EQUAL(stream_job_recv(), STEPAF_ERR_TRANSPORT);
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(stepaf_plan_status(stream_job.plan), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_recv(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_respond(), STEPAF_OK);
    stream_job_end();
}

/* An operation that is under way, without the request that was asked for. */
static void a_start_without_its_request_ends_the_plan(void)
{
    stepaf_request_h request = NULL;

    stream_job_begin(STEPAF_ATTENTION);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 3; /* capturing?, send, the event */
    CU_ASSERT_EQUAL(stream_job_start(NULL, &request), STEPAF_ERR_TRANSPORT);
    CU_ASSERT_PTR_NULL(request);
    expect_over(stepaf_wait_on_stream);
    stream_job_end();
}

/* Each launch takes the fewer blocks the more plans may be under way beside it. */
static void plans_share_the_blocks(void)
{
    static const unsigned blocks[] = {1056, 528, 264, 264};

    for (int n = 0; n < 4; n++) {
        stream_job_begin(STEPAF_ATTENTION);
        for (int i = 0; i < n; i++) {
            (void)stream_job_make(stream_job.job);
            (void)stream_job_make(stream_job.other);
        }
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_OK);
        CU_ASSERT_EQUAL(cpu_device.launched.blocks, blocks[n]);
        stream_job_end();
    }
}

/* A tensor has as many as it has work for, the largest that there is, too. */
static void the_largest_tensor_takes_all_blocks(void)
{
    static const uint32_t bytes[] = {1 << 20, 1 << 24, UINT32_MAX - 1024, UINT32_MAX};
    static const uint32_t blocks[] = {1024, STEPAF_LAUNCH_BLOCKS, STEPAF_LAUNCH_BLOCKS,
                                      STEPAF_LAUNCH_BLOCKS};
    uint8_t head;

    for (int i = 0; i < 4; i++) {
        struct stepaf_kernel_args args = {.n_tensors = 1};
        args.tensors[0].proto = STEPAF_PROTO_ZCOPY;
        args.tensors[0].bytes = bytes[i];
        CU_ASSERT_EQUAL(stepaf_stream_distribute(&args, true, STEPAF_LAUNCH_BLOCKS), 0);
        args.tensors[0].head = &head; /* it goes somewhere */
        CU_ASSERT_EQUAL(stepaf_stream_distribute(&args, true, STEPAF_LAUNCH_BLOCKS), blocks[i]);
    }
}

/* Of what goes through host memory few blocks send, so that its beginning is there soon, and no
 * more take it than may poll there; several tensors share them, but not chunks with parts. */
static void few_blocks_go_by_host_memory(void)
{
    struct stepaf_kernel_args args = {.n_tensors = 1};
    uint8_t head;

    args.tensors[0] = (struct stepaf_kernel_tensor){.head = &head,
                                                    .proto = STEPAF_PROTO_PARTS,
                                                    .bytes = 1 << 20,
                                                    .chunk = stepaf_part_bytes(1 << 20)};
    CU_ASSERT_EQUAL(stepaf_stream_distribute(&args, true, STEPAF_LAUNCH_BLOCKS),
                    STEPAF_PART_SENDERS);
    CU_ASSERT_EQUAL(stepaf_stream_distribute(&args, false, STEPAF_LAUNCH_BLOCKS),
                    STEPAF_PART_TAKERS);
    args.tensors[args.n_tensors++] = args.tensors[0];
    CU_ASSERT_EQUAL(stepaf_stream_distribute(&args, true, STEPAF_LAUNCH_BLOCKS),
                    STEPAF_PART_SENDERS);
    CU_ASSERT_EQUAL(args.tensors[0].n, args.tensors[1].n);
    args.tensors[1].proto = STEPAF_PROTO_CHUNKS;
    args.tensors[1].chunk = stepaf_chunk_bytes(1 << 20);
    CU_ASSERT_EQUAL(stepaf_stream_distribute(&args, true, STEPAF_LAUNCH_BLOCKS),
                    STEPAF_PART_SENDERS + STEPAF_CHUNK_SENDERS);
    CU_ASSERT_EQUAL(stepaf_stream_distribute(&args, false, STEPAF_LAUNCH_BLOCKS),
                    STEPAF_PART_TAKERS + STEPAF_CHUNK_TAKERS);
}

static void expect_word(int slot, unsigned i, uint32_t bytes, uint32_t mark)
{
    const struct stepaf_kernel_tensor *tensors =
        stream_job_stream()->launches.send[slot].args.tensors;
    const struct stepaf_kernel_tensor *tensor =
        &tensors[cpu_device.n_words == 1 ? stream_job.n_push - 1 : (int)i];

    CU_ASSERT_EQUAL(cpu_device.words[2 * i], (uintptr_t)tensor->head + STEPAF_HEAD_TELLS + 8);
    CU_ASSERT_EQUAL(cpu_device.words[2 * i + 1], (uint64_t)bytes << 32 | mark);
}

/* What copy engines have written for a peer is told of at once, where no size has changed; both
 * ends agree where. */
static void one_word_tells_of_a_peers_copies(void)
{
    stepaf_tensor_t push[2] = {{.key = 1, .bytes = STREAM_PUSH}, {.key = 3, .bytes = STREAM_MORE}};
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = 2};

    stream_job.n_push = 2;
    setenv("STEPAF_CUDA_ENGINE", "ce", 1);
    stream_job_begin(STEPAF_ATTENTION);
    unsetenv("STEPAF_CUDA_ENGINE");
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.n_words, 1);
    expect_word(0, 0, STREAM_MORE, STEPAF_TOLD_ALL);
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_start(&params, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.n_words, 1);
    expect_word(1, 0, STREAM_MORE, STEPAF_TOLD_ALL);
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
    push[0].bytes = STREAM_PUSH - 1;
    CU_ASSERT_EQUAL(stream_job_start(&params, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.n_words, 2);
    expect_word(0, 0, STREAM_PUSH - 1, STEPAF_TOLD);
    expect_word(0, 1, STREAM_MORE, STEPAF_TOLD);
    stream_job_end();
    stream_job.n_push = 1;
}

/* As above, seen from the end that receives, whatever copies there. */
static void the_receiver_knows_what_one_word_tells_of(void)
{
    stream_job.n_push = 2;
    for (int copies = 0; copies < 2; copies++) {
        setenv("STEPAF_CUDA_ENGINE", "ce", 1); /* its own; in auto these would be sent by pieces */
        stream_job_begin(STEPAF_FFN);
        unsetenv("STEPAF_CUDA_ENGINE");
        if (!copies)
            stream_job.other->ctx->env.cuda_engine = STEPAF_ENV_CUDA_ENGINE_sm;
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        const struct stepaf_kernel_tensor *tensors =
            stream_job_stream()->launches.receive[0].args.tensors;
        for (int i = 0; i < stream_job.n_push; i++) {
            CU_ASSERT_EQUAL(tensors[i].proto, STEPAF_PROTO_ZCOPY);
            CU_ASSERT_EQUAL(tensors[i].copied, copies ? stream_job.n_push : 0);
            CU_ASSERT_EQUAL(tensors[i].planned, i ? STREAM_MORE : STREAM_PUSH);
        }
        stream_job_end();
    }
    stream_job.n_push = 1;
}

static void bring(void *place, size_t bytes)
{
    CU_ASSERT_EQUAL_FATAL(stepaf_register(stream_job.job->handle, place, bytes), STEPAF_OK);
}

/* Tensors that lie side by side at both ends are copied at once, but only within an allocation:
 * CUDA refuses a copy that goes on into another. */
static void copies_stay_within_an_allocation(void)
{
    stepaf_tensor_t push[2] = {{.key = 1, .bytes = STREAM_PUSH}, {.key = 3, .bytes = STREAM_MORE}};
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = 2};
    stepaf_tensor_t pull = {.key = 2, .bytes = STREAM_PULL};

    stream_job.n_push = 2;
    stream_job.depth = 1;
    for (int planned = 0; planned < 2; planned++)
        for (int n_pieces = 1; n_pieces <= 2; n_pieces++) {
            setenv("STEPAF_CUDA_ENGINE", "ce", 1);
            stream_job_begin(STEPAF_ATTENTION);
            unsetenv("STEPAF_CUDA_ENGINE");
            struct cpu_piece *piece = cpu_device_piece(STREAM_PUSH + STREAM_MORE, 0, true);
            push[0].data = piece->base;
            push[1].data = piece->base + STREAM_PUSH;
            if (n_pieces > 1) {
                (void)cpu_device_split(piece, STREAM_PUSH);
                bring(push[1].data, STREAM_MORE);
            }
            bring(piece->base, piece->bytes);
            CU_ASSERT_EQUAL_FATAL(
                stepaf_alloc(stream_job.job->handle, STREAM_PULL, STEPAF_MEM_CUDA, &pull.data), 0);
            CU_ASSERT_EQUAL(stepaf_plan_destroy(stream_job.plan), STEPAF_OK);
            CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(stream_job.job->handle, push, 2, &pull, 1,
                                                     STEPAF_PLAN_STREAM, &stream_job.plan),
                                  STEPAF_OK);
            CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
            int n_copies = cpu_device.n_copies;
            CU_ASSERT_EQUAL(stream_job_start(planned ? NULL : &params, NULL), STEPAF_OK);
            CU_ASSERT_EQUAL(cpu_device.n_copies - n_copies, n_pieces);
            for (int i = 0; i < n_pieces; i++)
                cpu_device_drop(push[1 - i].data);
            stream_job_end();
        }
    stream_job.n_push = 1;
    stream_job.depth = STREAM_DEPTH;
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
    struct stepaf_map_part op_peer;

    stream_job_begin(STEPAF_ATTENTION);
    stepaf_map_part_make(stream_job.job->ctx, false, &op_peer);
    CU_ASSERT_EQUAL(op_peer.n_ways, 0);
    stepaf_map_part_free(&op_peer);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    snprintf(stream_job.job->ctx->peers[0].link->name, STEPAF_LINK_NAME,
             "shm;a-name-that-is-quite-long");
    stepaf_map_part_make(stream_job.job->ctx, false, &op_peer);
    CU_ASSERT_EQUAL_FATAL(op_peer.n_ways, 1);
    CU_ASSERT_STRING_EQUAL(op_peer.ways[0].name, "shm;a-name-that-is-qui,cuda_ipc");
    stepaf_map_part_free(&op_peer);
    stream_job_end();
}

/* Waits of a plan that has ended may still be on streams. */
static void a_lost_peer_ends_waits_of_plans_that_are_gone(void)
{
    stream_job_begin(STEPAF_ATTENTION);
    stepaf_plan_h second = stream_job_make(stream_job.job);
    (void)stream_job_make(stream_job.other);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    const struct stepaf_gpu_watch *watches = stream_job.job->ctx->gpu.streams->watches;
    CU_ASSERT_EQUAL(stream_job_start(NULL, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(stream_job_wait(), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_plan_destroy(stream_job.plan), STEPAF_OK);
    CU_ASSERT_EQUAL(watches[0].abort, 0);
    stepaf_peer_fail(&stream_job.job->ctx->peers[0], "says the test");
    CU_ASSERT_EQUAL(watches[0].abort, 1);
    CU_ASSERT_EQUAL(watches[1].abort, 1);
    CU_ASSERT_EQUAL(stepaf_plan_status(second), STEPAF_ERR_PEER_LOST);
    stream_job_end();
}

/* Each commit begins anew, and what only those before have used is given back. */
static void commits_keep_no_streams(void)
{
    stepaf_request_h request;
    int held = 0;

    stream_job_begin(STEPAF_ATTENTION);
    for (uint64_t n = 0; n < 4; n++) {
        stream_job_key(10 + n, STEPAF_PUSH, 1);
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        CU_ASSERT_EQUAL(stream_job_start(NULL, &request), STEPAF_OK);
        CU_ASSERT_EQUAL(stepaf_wait(request, -1), STEPAF_OK);
        if (n > 1) /* one rank's pinned memory: that of the other, whose commits do not end */
            CU_ASSERT_EQUAL(cpu_device.n_held, held + 1);
        held = cpu_device.n_held;
    }
    stream_job_end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nothing is enqueued before the commit", nothing_is_enqueued_before_the_commit},
        {"half a wait ends the plan", half_a_wait_ends_the_plan},
        {"half a receive ends the plan", half_a_receive_ends_the_plan},
        {"mailboxes that were captured stay", mailboxes_that_were_captured_stay},
        {"a launch that fails counts nothing", a_launch_that_fails_counts_nothing},
        {"a start without its request ends the plan", a_start_without_its_request_ends_the_plan},
        {"plans share the blocks", plans_share_the_blocks},
        {"the largest tensor takes all blocks", the_largest_tensor_takes_all_blocks},
        {"few blocks go by host memory", few_blocks_go_by_host_memory},
        {"one word tells of a peer's copies", one_word_tells_of_a_peers_copies},
        {"the receiver knows what one word tells of", the_receiver_knows_what_one_word_tells_of},
        {"copies stay within an allocation", copies_stay_within_an_allocation},
        {"no operation's stamp counts nothing", no_operations_stamp_is_the_one_that_counts_nothing},
        {"the map names what streams write to", the_map_names_what_streams_write_to},
        {"a lost peer ends waits of plans that are gone",
         a_lost_peer_ends_waits_of_plans_that_are_gone},
        {"commits keep no streams", commits_keep_no_streams},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
