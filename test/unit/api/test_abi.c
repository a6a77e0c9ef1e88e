/* SPDX-License-Identifier: Apache-2.0 */
/* What programs are compiled with: the layout of public structures, and callers who know another
 * version of those that the library fills. */
#include <stddef.h>
#include <string.h>

#include "api/fill.h"
#include "batches.h"
#include "unit.h"

enum { MARK = 0xa5, ROOM = 1024, TRIES = 1000 };

#define SIZE(type_, bytes_) CU_ASSERT_EQUAL(sizeof(type_), bytes_)
#define AT(type_, field_, offset_) CU_ASSERT_EQUAL(offsetof(type_, field_), offset_)

static void what_is_filled_stays_where_it_is(void)
{
    SIZE(stepaf_tensor_info_t, 120);
    AT(stepaf_tensor_info_t, size, 0);
    AT(stepaf_tensor_info_t, key, 8);
    AT(stepaf_tensor_info_t, data, 16);
    AT(stepaf_tensor_info_t, bytes, 24);
    AT(stepaf_tensor_info_t, max_bytes, 32);
    AT(stepaf_tensor_info_t, dtype, 40);
    AT(stepaf_tensor_info_t, ndim, 44);
    AT(stepaf_tensor_info_t, shape, 48);
    AT(stepaf_tensor_info_t, mem_kind, 112);
    SIZE(stepaf_batch_info_t, 32);
    AT(stepaf_batch_info_t, size, 0);
    AT(stepaf_batch_info_t, attention_rank, 8);
    AT(stepaf_batch_info_t, plan, 12);
    AT(stepaf_batch_info_t, sequence, 16);
    AT(stepaf_batch_info_t, n_tensors, 20);
    AT(stepaf_batch_info_t, n_answers, 24);
    SIZE(stepaf_link_info_t, 336);
    AT(stepaf_link_info_t, size, 0);
    AT(stepaf_link_info_t, world_rank, 8);
    AT(stepaf_link_info_t, is_lost, 12);
    AT(stepaf_link_info_t, transport, 16);
    AT(stepaf_link_info_t, address, 48);
    AT(stepaf_link_info_t, refused, 96);
    AT(stepaf_link_info_t, bytes_sent, 288);
    AT(stepaf_link_info_t, messages_sent, 296);
    AT(stepaf_link_info_t, bytes_received, 304);
    AT(stepaf_link_info_t, streams, 312);
    AT(stepaf_link_info_t, clock_bound_ns, 328);
    SIZE(stepaf_timeline_t, 48);
    AT(stepaf_timeline_t, size, 0);
    AT(stepaf_timeline_t, start_ns, 8);
    AT(stepaf_timeline_t, notified_ns, 16);
    AT(stepaf_timeline_t, answered_ns, 24);
    AT(stepaf_timeline_t, ffn_queue_ns, 32);
    AT(stepaf_timeline_t, ffn_work_ns, 40);
    SIZE(stepaf_verdict_t, 136);
    AT(stepaf_verdict_t, time_ns, 0);
    AT(stepaf_verdict_t, took_ns, 8);
    AT(stepaf_verdict_t, usual_ns, 16);
    AT(stepaf_verdict_t, sequence, 24);
    AT(stepaf_verdict_t, plan, 28);
    AT(stepaf_verdict_t, phase, 30);
    AT(stepaf_verdict_t, peer, 32);
    AT(stepaf_verdict_t, rail, 36);
    AT(stepaf_verdict_t, over_ns, 40);
    SIZE(stepaf_verdict_window_t, 256);
    AT(stepaf_verdict_window_t, size, 0);
    AT(stepaf_verdict_window_t, window_ns, 8);
    AT(stepaf_verdict_window_t, operations, 16);
    AT(stepaf_verdict_window_t, late, 24);
    AT(stepaf_verdict_window_t, unjudged, 32);
    AT(stepaf_verdict_window_t, usual_ns, 40);
    AT(stepaf_verdict_window_t, phase, 48);
    AT(stepaf_verdict_window_t, peer, 52);
    AT(stepaf_verdict_window_t, by_phase, 56);
    AT(stepaf_verdict_window_t, over_ns, 152);
    AT(stepaf_verdict_window_t, rail, 248);
    AT(stepaf_verdict_window_t, reserved, 252);
    SIZE(stepaf_verdict_peer_t, 208);
    AT(stepaf_verdict_peer_t, size, 0);
    AT(stepaf_verdict_peer_t, late, 8);
    AT(stepaf_verdict_peer_t, by_phase, 16);
    AT(stepaf_verdict_peer_t, over_ns, 112);
    SIZE(stepaf_counters_t, 144);
    AT(stepaf_counters_t, size, 0);
    AT(stepaf_counters_t, operations_started, 8);
    AT(stepaf_counters_t, operations_completed, 16);
    AT(stepaf_counters_t, operations_failed, 24);
    AT(stepaf_counters_t, batches_received, 32);
    AT(stepaf_counters_t, responses_sent, 40);
    AT(stepaf_counters_t, bytes_sent, 48);
    AT(stepaf_counters_t, bytes_received, 56);
    AT(stepaf_counters_t, would_block, 64);
    AT(stepaf_counters_t, queued, 72);
    AT(stepaf_counters_t, dropped_malformed, 80);
    AT(stepaf_counters_t, dropped_stale, 88);
    AT(stepaf_counters_t, late, 96);
    AT(stepaf_counters_t, peers_lost, 104);
    AT(stepaf_counters_t, yields, 112);
    AT(stepaf_counters_t, incomplete, 120);
    AT(stepaf_counters_t, left_out, 128);
    AT(stepaf_counters_t, thread_busy_ns, 136);
    SIZE(stepaf_members_t, 48);
    AT(stepaf_members_t, size, 0);
    AT(stepaf_members_t, epoch, 8);
    AT(stepaf_members_t, n_in, 12);
    AT(stepaf_members_t, n_slow, 16);
    AT(stepaf_members_t, n_lost, 20);
    AT(stepaf_members_t, n_out, 24);
    AT(stepaf_members_t, n_asking, 28);
    AT(stepaf_members_t, changes, 32);
    AT(stepaf_members_t, n_leaving, 40);
    AT(stepaf_members_t, n_left, 44);
    SIZE(stepaf_memory_use_t, 72);
    AT(stepaf_memory_use_t, size, 0);
    AT(stepaf_memory_use_t, fixed, 8);
    AT(stepaf_memory_use_t, declared, 16);
    AT(stepaf_memory_use_t, per_peer, 24);
    AT(stepaf_memory_use_t, peers, 32);
    AT(stepaf_memory_use_t, per_key, 40);
    AT(stepaf_memory_use_t, key_peers, 48);
    AT(stepaf_memory_use_t, receive, 56);
    AT(stepaf_memory_use_t, bounce, 64);
    SIZE(stepaf_trace_record_t, 32);
    AT(stepaf_trace_record_t, time_ns, 0);
    AT(stepaf_trace_record_t, sequence, 8);
    AT(stepaf_trace_record_t, plan, 12);
    AT(stepaf_trace_record_t, event, 14);
    AT(stepaf_trace_record_t, peer, 16);
    AT(stepaf_trace_record_t, tensor, 20);
    AT(stepaf_trace_record_t, bytes, 24);
}

static void what_is_read_stays_where_it_is(void)
{
    SIZE(stepaf_params_t, 32);
    AT(stepaf_params_t, field_mask, 0);
    AT(stepaf_params_t, role, 8);
    AT(stepaf_params_t, progress, 12);
    AT(stepaf_params_t, threads, 16);
    AT(stepaf_params_t, split, 24);
    SIZE(stepaf_key_params_t, 88);
    AT(stepaf_key_params_t, field_mask, 0);
    AT(stepaf_key_params_t, dtype, 8);
    AT(stepaf_key_params_t, ndim, 12);
    AT(stepaf_key_params_t, shape, 16);
    AT(stepaf_key_params_t, depth, 80);
    AT(stepaf_key_params_t, mem_kind, 84);
    SIZE(stepaf_commit_params_t, 24);
    AT(stepaf_commit_params_t, field_mask, 0);
    AT(stepaf_commit_params_t, lost, 8);
    AT(stepaf_commit_params_t, returning, 12);
    AT(stepaf_commit_params_t, leaving, 16);
    SIZE(stepaf_start_params_t, 48);
    AT(stepaf_start_params_t, field_mask, 0);
    AT(stepaf_start_params_t, timeout_us, 8);
    AT(stepaf_start_params_t, flags, 16);
    AT(stepaf_start_params_t, n_push, 20);
    AT(stepaf_start_params_t, push, 24);
    AT(stepaf_start_params_t, n_answers, 32);
    AT(stepaf_start_params_t, patience_us, 40);
    SIZE(stepaf_boot_t, 64);
    AT(stepaf_boot_t, name, 0);
    AT(stepaf_boot_t, self, 8);
    AT(stepaf_boot_t, rank, 16);
    AT(stepaf_boot_t, size, 20);
    AT(stepaf_boot_t, app_number, 24);
    AT(stepaf_boot_t, allgather, 32);
    AT(stepaf_boot_t, barrier, 40);
    AT(stepaf_boot_t, close, 48);
    AT(stepaf_boot_t, lost, 56);
    SIZE(stepaf_tensor_t, 24);
    AT(stepaf_tensor_t, key, 0);
    AT(stepaf_tensor_t, data, 8);
    AT(stepaf_tensor_t, bytes, 16);
}

static void what_the_library_owns_stays_where_it_is(void)
{
    SIZE(stepaf_error_t, 340);
    AT(stepaf_error_t, status, 0);
    AT(stepaf_error_t, phase, 4);
    AT(stepaf_error_t, peer_role, 8);
    AT(stepaf_error_t, peer_rank, 12);
    AT(stepaf_error_t, peer_world_rank, 16);
    AT(stepaf_error_t, text, 20);
    SIZE(stepaf_answers_t, 24);
    AT(stepaf_answers_t, mask, 0);
    AT(stepaf_answers_t, given_up, 8);
    AT(stepaf_answers_t, late, 16);
    SIZE(stepaf_origin_t, 8);
    AT(stepaf_origin_t, peer, 0);
    AT(stepaf_origin_t, slot, 4);
    SIZE(stepaf_role_t, 4);
    SIZE(stepaf_context_h, 8);
}

/* Ask for one structure, in the @a room that is given for it. */
typedef stepaf_status_t (*ask_t)(void *room);

static stepaf_batch_h batch;
static stepaf_request_h request;

static stepaf_status_t ask_batch(void *room)
{
    return stepaf_batch_query(batch, room);
}

static stepaf_status_t ask_tensor(void *room)
{
    return stepaf_batch_tensor(batch, 0, room);
}

static stepaf_status_t ask_answer(void *room)
{
    return stepaf_batch_answer(batch, 0, room);
}

static stepaf_status_t ask_link(void *room)
{
    return stepaf_link_query(job->handle, 0, room);
}

static stepaf_status_t ask_counters(void *room)
{
    return stepaf_counters_query(job->handle, room);
}

static stepaf_status_t ask_memory(void *room)
{
    return stepaf_memory_query(job->handle, room);
}

static stepaf_status_t ask_pulled(void *room)
{
    return stepaf_request_tensor(request, 0, room);
}

static stepaf_status_t ask_timeline(void *room)
{
    return stepaf_timeline_query(request, 0, room);
}

static size_t untouched(const uint8_t *room, size_t from)
{
    size_t n = 0;

    for (size_t i = from; i < ROOM; i++)
        n += room[i] == MARK;
    return n;
}

static stepaf_status_t ask_with(ask_t ask, size_t size, uint8_t *room)
{
    size_t after;

    memset(room, MARK, ROOM);
    memcpy(room, &size, sizeof size);
    stepaf_status_t status = ask(room);
    memcpy(&after, room, sizeof after);
    CU_ASSERT_EQUAL(after, size); /* the caller's */
    return status;
}

/* Ask with another version's size, and with this one's, until nothing changes meanwhile: times go
 * on. */
static void ask_both(ask_t ask, size_t other, size_t size, uint8_t *room, uint8_t *same)
{
    uint8_t again[ROOM];
    int left = TRIES;

    do {
        CU_ASSERT_EQUAL(ask_with(ask, size, same), STEPAF_OK);
        CU_ASSERT_EQUAL(ask_with(ask, other, room), STEPAF_OK);
        CU_ASSERT_EQUAL(ask_with(ask, size, again), STEPAF_OK);
    } while (memcmp(same, again, size) && --left);
    CU_ASSERT(left > 0);
}

/* Callers of the first version, of this one and of later ones, and those who set nothing. */
static void check(ask_t ask, size_t first, size_t size, const char *type)
{
    static const size_t too_small[] = {0, 1, sizeof(size_t)};
    uint8_t room[ROOM], same[ROOM];

    for (size_t i = 0; i <= sizeof too_small / sizeof *too_small; i++) {
        size_t less = i ? too_small[i - 1] : first - 1;
        CU_ASSERT_EQUAL(ask_with(ask, less, room), STEPAF_ERR_INVALID);
        UNIT_CONTAINS(stepaf_last_error()->text, type);
        CU_ASSERT_EQUAL(untouched(room, sizeof(size_t)), ROOM - sizeof(size_t));
    }
    ask_both(ask, first, size, room, same);
    CU_ASSERT_EQUAL(untouched(same, size), ROOM - size);
    CU_ASSERT_NOT_EQUAL(untouched(same, sizeof(size_t)), ROOM - sizeof(size_t));
    CU_ASSERT_EQUAL(untouched(room, first), ROOM - first);
    CU_ASSERT_EQUAL(memcmp(room + 8, same + 8, first - 8 - 4), 0);
    for (int far = 0; far < 2; far++) {
        ask_both(ask, far ? SIZE_MAX : size + 64, size, room, same);
        CU_ASSERT_EQUAL(memcmp(room + 8, same + 8, first - 8 - 4), 0);
        CU_ASSERT_EQUAL(untouched(room, size), ROOM - size);
    }
}

static void an_ffn_rank_asks_with_any_size(void)
{
    begin();
    start(0, 0, 0);
    batch = take();
    check(ask_batch, STEPAF_FIRST_BATCH_INFO, sizeof(stepaf_batch_info_t), "stepaf_batch_info_t");
    check(ask_tensor, STEPAF_FIRST_TENSOR_INFO, sizeof(stepaf_tensor_info_t),
          "stepaf_tensor_info_t");
    check(ask_answer, STEPAF_FIRST_TENSOR_INFO, sizeof(stepaf_tensor_info_t),
          "stepaf_tensor_info_t");
    check(ask_link, STEPAF_FIRST_LINK_INFO, sizeof(stepaf_link_info_t), "stepaf_link_info_t");
    check(ask_counters, STEPAF_FIRST_COUNTERS, sizeof(stepaf_counters_t), "stepaf_counters_t");
    check(ask_memory, STEPAF_FIRST_MEMORY_USE, sizeof(stepaf_memory_use_t), "stepaf_memory_use_t");
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    end();
}

/* An attention rank whose only operation is answered. */
static struct fake_job *open_attention(struct fake_job **ffn_p)
{
    struct fake_job *attention = fake_open(STEPAF_ATTENTION, 1, 1);
    struct fake_job *ffn = fake_open(STEPAF_FFN, 1, 1);
    stepaf_tensor_t push = {PUSHED, NULL, BYTES}, pull = {PULLED, NULL, BYTES};
    stepaf_plan_h plan;
    void *data;

    fake_key(attention, ffn, PUSHED, STEPAF_PUSH, BYTES, 1);
    fake_key(attention, ffn, PULLED, STEPAF_PULL, BYTES, 1);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(attention->handle, 2 * BYTES, STEPAF_MEM_HOST, &data), 0);
    push.data = data;
    pull.data = (uint8_t *)data + BYTES;
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(attention->handle, &push, 1, &pull, 1, 0, &plan), 0);
    CU_ASSERT_EQUAL_FATAL(fake_commit(attention, ffn), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_start(plan, &request), STEPAF_OK);
    struct stepaf_msg response = fake_msg(attention, STEPAF_MSG_RESPONSE, 0, 0, 0);
    response.flags = STEPAF_MSG_RELEASED;
    fake_tell(attention, 0, &response);
    CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
    *ffn_p = ffn;
    return attention;
}

static void an_attention_rank_asks_with_any_size(void)
{
    struct fake_job *ffn, *attention = open_attention(&ffn);

    check(ask_pulled, STEPAF_FIRST_TENSOR_INFO, sizeof(stepaf_tensor_info_t),
          "stepaf_tensor_info_t");
    check(ask_timeline, STEPAF_FIRST_TIMELINE, sizeof(stepaf_timeline_t), "stepaf_timeline_t");
    fake_close(attention);
    fake_close(ffn);
}

static void trace_records_are_as_far_apart_as_the_caller_says(void)
{
    struct fake_job *ffn, *attention = open_attention(&ffn);
    size_t wide = sizeof(stepaf_trace_record_t) + 24, n, n_wide;
    stepaf_trace_record_t records[8];
    uint8_t room[ROOM];

    CU_ASSERT_EQUAL(stepaf_trace_read(attention->handle, records, sizeof *records, 8, &n),
                    STEPAF_OK);
    CU_ASSERT(n > 2 && n < 8);
    memset(room, MARK, ROOM);
    CU_ASSERT_EQUAL(
        stepaf_trace_read(attention->handle, (stepaf_trace_record_t *)room, wide, 8, &n_wide),
        STEPAF_OK);
    CU_ASSERT_EQUAL(n_wide, n);
    for (size_t i = 0; i < n; i++) {
        CU_ASSERT_EQUAL(memcmp(room + i * wide, &records[i], sizeof *records), 0);
        for (size_t at = sizeof *records; at < wide; at++)
            CU_ASSERT_EQUAL(room[i * wide + at], MARK);
    }
    CU_ASSERT_EQUAL(untouched(room, n * wide), ROOM - n * wide);
    CU_ASSERT_EQUAL(stepaf_trace_read(attention->handle, records, sizeof *records - 1, 8, &n_wide),
                    STEPAF_ERR_INVALID);
    UNIT_CONTAINS(stepaf_last_error()->text, "sizeof(stepaf_trace_record_t)");
    CU_ASSERT_EQUAL(n_wide, n);
    fake_close(attention);
    fake_close(ffn);
}

/* A structure that has grown since: today's callers are yesterday's then. */
static void a_later_version_fills_what_the_caller_knows(void)
{
    enum { FIRST = 16, GROWN = 40 };
    uint8_t facts[GROWN], room[ROOM];

    for (int i = 0; i < GROWN; i++)
        facts[i] = (uint8_t)(i + 1);
    for (size_t size = FIRST; size <= GROWN + 16; size += 8) {
        size_t known = size < GROWN ? size : GROWN;
        memset(room, MARK, ROOM);
        memcpy(room, &size, sizeof size);
        CU_ASSERT_EQUAL(stepaf_fill(room, "grown_t", FIRST, facts, GROWN), STEPAF_OK);
        CU_ASSERT_EQUAL(memcmp(room, &size, sizeof size), 0);
        CU_ASSERT_EQUAL(memcmp(room + 8, facts + 8, known - 8), 0);
        CU_ASSERT_EQUAL(untouched(room, known), ROOM - known);
    }
}

static void starts_with_unknown_fields_are_refused(void)
{
    struct fake_job *ffn, *attention = open_attention(&ffn);
    stepaf_tensor_t push = {PUSHED, attention->ctx->memory.regions[0]->mem.base, BYTES},
                    pull = {PULLED, attention->ctx->memory.regions[0]->mem.base + BYTES, BYTES};
    stepaf_start_params_t params = {.flags = ~0u, .n_push = -7, .push = &push};
    stepaf_request_h second = NULL;
    stepaf_plan_h plan;

    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(attention->handle, &push, 1, &pull, 1, 0, &plan), 0);
    for (int bit = 5; bit < 64; bit++) {
        params.field_mask = (uint64_t)1 << bit;
        CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &second), STEPAF_ERR_INVALID);
        UNIT_CONTAINS(stepaf_last_error()->text, "unknown bits");
    }
    params.field_mask = STEPAF_START_PARAM_FLAGS;
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &second), STEPAF_ERR_INVALID);
    params.field_mask = STEPAF_START_PARAM_PUSH;
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &second), STEPAF_ERR_INVALID);
    params.field_mask = 0; /* nothing of it is read */
    CU_ASSERT_EQUAL(stepaf_start_with(plan, &params, &second), STEPAF_OK);
    fake_close(attention);
    fake_close(ffn);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is filled stays where it is", what_is_filled_stays_where_it_is},
        {"what is read stays where it is", what_is_read_stays_where_it_is},
        {"what the library owns stays where it is", what_the_library_owns_stays_where_it_is},
        {"an FFN rank asks with any size", an_ffn_rank_asks_with_any_size},
        {"an attention rank asks with any size", an_attention_rank_asks_with_any_size},
        {"trace records are as far apart as the caller says",
         trace_records_are_as_far_apart_as_the_caller_says},
        {"a later version fills what the caller knows",
         a_later_version_fills_what_the_caller_knows},
        {"starts with unknown fields are refused", starts_with_unknown_fields_are_refused},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
