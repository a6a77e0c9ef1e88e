/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks ask and tell each other about operations that are late: the other rank is made up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/counters.h"
#include "core/imm.h"
#include "core/metrics.h"
#include "core/metrics_layout.h"
#include "core/op.h"
#include "core/plan.h"
#include "verdict/window.h"
#include "verdicts.h"

/* Have the next operation come @a ns later after the last one than it does. */
static void pretend_pause(int64_t ns)
{
    struct stepaf_verdict_state *state = stepaf_verdict_of(job->ctx);
    struct stepaf_verdict_plan *of = state->plans[0];
    struct stepaf_plan_obj *made = stepaf_table_get(&job->ctx->tables.plans, 0);
    uint64_t ticks = (uint64_t)((double)ns / job->ctx->clock.own.ns_per_tick);

    state->watch.last_done -= ticks;
    for (int i = 0; i < made->depth; i++)
        made->ops[i].trace.done -= ticks;
    of->first -= ticks;
    of->last -= ticks;
    of->learnt -= ticks;
    made->watched.next = made->seq;
    of->stride = 1; /* both of a pair are picked */
}

/* Operations come in pairs, with a pause before each that is longer than it is learnt from them: of
 * each pair the first would be learnt from, as if all had pauses. */
static void pauses_are_not_taken_for_the_usual(void)
{
    begin(STEPAF_ATTENTION, "on");
    learn();
    const struct stepaf_verdict_usual *usual = &stepaf_verdict_of(job->ctx)->plans[0]->usual;
    uint32_t before = usual->idle.n;
    for (int i = 0; i < LEARNT; i++) {
        pretend_pause(2000000000);
        (void)operate(0);
        (void)operate(0);
    }
    CU_ASSERT(usual->idle.n >= before + STEPAF_MEDIAN_SAMPLES);
    CU_ASSERT(usual->idle.median < 2000000000);
    end();
}

static void a_late_operation_is_asked_about(void)
{
    begin(STEPAF_ATTENTION, "on");
    learn();
    int64_t busy = 10 * longest_ns + 1000000;
    CU_ASSERT_TRUE_FATAL(operate(busy));
    CU_ASSERT_EQUAL(fake_last(job)->msg.seq, seq - 1);
    struct stepaf_msg told = tell_msg(seq - 1, started_ns, (uint32_t)worked_ns);
    fake_forget(job);
    fake_tell(job, 0, &told);
    stepaf_verdict_t verdict = verdict_on(seq - 1);
    CU_ASSERT_EQUAL(verdict.phase, STEPAF_VERDICT_FFN_WORK);
    CU_ASSERT_EQUAL(verdict.peer, 0);
    CU_ASSERT(verdict.over_ns[STEPAF_VERDICT_FFN_WORK] > busy / 2);
    CU_ASSERT(verdict.took_ns >= busy);
    CU_ASSERT_EQUAL_FATAL(fake_count(job, STEPAF_MSG_TOLD), 1);
    CU_ASSERT_EQUAL(fake_last(job)->msg.word[STEPAF_MSG_PHASE], STEPAF_VERDICT_FFN_WORK);

    stepaf_verdict_window_t window = {.size = sizeof(window)};
    stepaf_verdict_peer_t peer = {.size = sizeof(peer)};
    CU_ASSERT_EQUAL(stepaf_verdict_query(job->handle, &window), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_verdict_peer(job->handle, 0, &peer), STEPAF_OK);
    CU_ASSERT_EQUAL(window.operations, seq);
    CU_ASSERT(window.by_phase[STEPAF_VERDICT_FFN_WORK] >= 1);
    CU_ASSERT_EQUAL(peer.by_phase[STEPAF_VERDICT_FFN_WORK],
                    window.by_phase[STEPAF_VERDICT_FFN_WORK]);
    CU_ASSERT_EQUAL(peer.over_ns[STEPAF_VERDICT_FFN_WORK], window.over_ns[STEPAF_VERDICT_FFN_WORK]);
    end();
}

static unsigned n_lines;
static char last_line[512];

static void take_line(stepaf_log_level_t level, const char *file, int line, const char *message,
                      void *arg)
{
    (void)level, (void)file, (void)line, (void)arg;
    if (!strstr(message, "were late"))
        return;
    n_lines++;
    snprintf(last_line, sizeof(last_line), "%s", message);
}

/* However often something is late, the log has it at most once a second. */
/* Also when all operations have been slow for so long that none of the last ones was quick, but not
 * for so long that this is usual. */
static void what_is_slow_for_a_while_is_late(void)
{
    const int64_t slow_ns = 6000000; /* longer than they are apart of which that is learnt */

    begin(STEPAF_ATTENTION, "on");
    learn();
    struct stepaf_verdict_plan *of = stepaf_verdict_of(job->ctx)->plans[0];
    struct stepaf_plan_obj *made = stepaf_table_get(&job->ctx->tables.plans, 0);
    of->first -= (uint64_t)(1e8 * job->ctx->clock.own.ticks_per_us); /* it is known for long */
    of->learnt = stepaf_ticks();
    made->watched.next = made->seq;
    of->stride = 1;
    for (int i = 0; i < LEARNT; i++)
        (void)operate(slow_ns);
    CU_ASSERT((double)of->usual.lately.least > 0.9 * (double)slow_ns);
    for (int i = 0; i < 3; i++) {
        made->watched.next = made->seq + INT32_MAX;
        CU_ASSERT_TRUE(operate(slow_ns));
    }
    end();
}

static void the_log_says_it_once(void)
{
    stepaf_log_set_callback(take_line, NULL);
    setenv("STEPAF_LOG_LEVEL", "info", 1);
    begin(STEPAF_ATTENTION, "on");
    unsetenv("STEPAF_LOG_LEVEL");
    learn();
    n_lines = 0;
    stepaf_verdict_of(job->ctx)->logged_ns = 0; /* what was late by itself */
    int64_t busy = 10 * longest_ns + 1000000, began = stepaf_monotonic_ns();
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_TRUE_FATAL(operate(busy));
        struct stepaf_msg told = tell_msg(seq - 1, started_ns, (uint32_t)worked_ns);
        fake_tell(job, 0, &told);
        /* It looks anew when it has something to ask, or after a while. */
        job->ctx->polling.watch->look_due = job->ctx->polling.look_at = 0;
        CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
    }
    CU_ASSERT(n_lines >= 1 && n_lines <= 1 + (stepaf_monotonic_ns() - began) / 1000000000);
    UNIT_CONTAINS(last_line, "longer than usual");
    end();
    stepaf_log_set_callback(NULL, NULL);
}

/* The answer is told once, and to who has asked. */
static void what_was_not_asked_for_changes_nothing(void)
{
    stepaf_verdict_t verdicts[64];

    begin(STEPAF_ATTENTION, "on");
    learn();
    size_t n = read_all(verdicts, 64);
    uint64_t malformed = job->ctx->counters.dropped_malformed;
    struct stepaf_msg told = tell_msg(12345, 1, 1);
    fake_tell(job, 0, &told);
    CU_ASSERT_EQUAL(read_all(verdicts, 64), n);
    CU_ASSERT_EQUAL(job->ctx->counters.dropped_malformed, malformed);
    struct stepaf_msg ask = fake_msg(job, STEPAF_MSG_ASK, 0, 0, 0);
    struct stepaf_msg who = fake_msg(job, STEPAF_MSG_TOLD, 0, 0, 0);
    fake_forget(job);
    fake_tell(job, 0, &ask);
    fake_tell(job, 0, &who);
    CU_ASSERT_EQUAL(job->n_records, 0);
    CU_ASSERT_EQUAL(job->ctx->counters.dropped_malformed, malformed + 2);
    end();
}

static void a_time_that_cannot_be_is_none(void)
{
    static const int64_t times[] = {-1, INT64_MIN, INT64_MAX, 0};

    for (int i = 0; i < 4; i++) {
        begin(STEPAF_ATTENTION, "on");
        learn();
        uint64_t malformed = job->ctx->counters.dropped_malformed;
        int64_t busy = 10 * longest_ns + 1000000;
        CU_ASSERT_TRUE_FATAL(operate(busy));
        struct stepaf_msg told = tell_msg(seq - 1, times[i], (uint32_t)busy);
        fake_tell(job, 0, &told);
        stepaf_verdict_t verdict = verdict_on(seq - 1);
        if (times[i]) /* the machine may be up for less than a day */
            CU_ASSERT_EQUAL(job->ctx->counters.dropped_malformed, malformed + 1);
        if (times[i])
            CU_ASSERT_NOT_EQUAL(verdict.phase, STEPAF_VERDICT_FFN_WORK);
        CU_ASSERT(verdict.phase < STEPAF_VERDICT_LAST);
        end();
    }
}

static void an_ffn_rank_tells_when(void)
{
    stepaf_batch_h batch;
    int n;

    begin(STEPAF_FFN, "on");
    struct stepaf_msg open = fake_msg(job, STEPAF_MSG_PLAN, 0, 0, 0);
    struct stepaf_msg tensor = fake_msg(job, STEPAF_MSG_TENSOR, 0, 0, 0);
    open.word[0] = 1;
    open.word[2] = 1;
    tensor.word[0] = PUSHED;
    tensor.word[2] = BYTES;
    fake_tell(job, 0, &open);
    fake_tell(job, 0, &tensor);
    struct stepaf_msg start = fake_msg(job, STEPAF_MSG_START, 0, 0, 0);
    struct stepaf_msg ask = fake_msg(job, STEPAF_MSG_ASK, 0, 0, 0);
    fake_forget(job);
    fake_tell(job, 0, &ask); /* of one that has not come */
    CU_ASSERT_EQUAL_FATAL(fake_count(job, STEPAF_MSG_TELL), 1);
    CU_ASSERT_EQUAL(fake_last(job)->msg.word[STEPAF_MSG_KNOWN], 0);
    int64_t before = stepaf_clock_ns(job->handle);
    fake_tell(job, 0, &start);
    CU_ASSERT_EQUAL_FATAL(stepaf_recv(job->handle, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n),
                          STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_release(batch), STEPAF_OK);
    int64_t after = stepaf_clock_ns(job->handle);
    fake_forget(job);
    fake_tell(job, 0, &ask);
    CU_ASSERT_EQUAL_FATAL(fake_count(job, STEPAF_MSG_TELL), 1);
    const struct stepaf_msg *told = &fake_last(job)->msg;
    int64_t arrived = (int64_t)(told->word[STEPAF_MSG_ARRIVED] |
                                (uint64_t)told->word[STEPAF_MSG_ARRIVED + 1] << 32);
    CU_ASSERT_EQUAL(told->word[STEPAF_MSG_KNOWN], 1);
    CU_ASSERT(arrived > before - 1000000 && arrived < after + 1000000);
    CU_ASSERT(told->word[STEPAF_MSG_QUEUE] <= after - before + 1000000);
    CU_ASSERT(told->word[STEPAF_MSG_WORK] <= after - before + 1000000);
    end();
}

/* By the short way, where a thread waits for the operation, or by the longer one: it counts once, and
 * with the time of the poll. */
static void an_answer_of_32_bits_is_watched(void)
{
    stepaf_request_h request;

    begin(STEPAF_ATTENTION, "on");
    for (uint32_t waits = 0; waits < 2; waits++) {
        struct stepaf_ctx *ctx = job->ctx;
        struct stepaf_plan_obj *obj = stepaf_table_get(&ctx->tables.plans, 0);
        uint32_t imm = stepaf_imm_make(STEPAF_IMM_RELEASED, 0, waits, ctx->epoch);
        CU_ASSERT_EQUAL_FATAL(stepaf_start(plan, &request), STEPAF_OK);
        ctx->polling.hint_op = waits ? &obj->ops[0] : NULL;
        uint64_t stamp = ctx->up.polled = stepaf_ticks();
        ctx->up.deliver_imm(&ctx->up, ctx->peers[0].link, imm ^ 1); /* another one's */
        CU_ASSERT_EQUAL(stepaf_core_counters(ctx).bytes_received, waits * BYTES);
        ctx->up.deliver_imm(&ctx->up, ctx->peers[0].link, imm);
        CU_ASSERT_EQUAL(stepaf_core_counters(ctx).bytes_received, (waits + 1) * BYTES);
        CU_ASSERT_EQUAL(stepaf_verdict_of(ctx)->watch.last_done, stamp);
        CU_ASSERT_EQUAL(obj->ops[0].op_peers[0].answered, stamp);
        ctx->up.deliver_imm(&ctx->up, ctx->peers[0].link, imm); /* and it is no answer any more */
        CU_ASSERT_EQUAL(stepaf_core_counters(ctx).bytes_received, (waits + 1) * BYTES);
        CU_ASSERT_EQUAL(stepaf_core_counters(ctx).dropped_stale, 2 * (waits + 1));
        ctx->polling.hint_op = NULL;
        ctx->up.polled = 0;
        CU_ASSERT_EQUAL(stepaf_wait(request, 0), STEPAF_OK);
        fake_forget(job);
    }
    end();
}

/* A thread that waits loses its core between its stamp and the poll that finds the answer. */
static void an_old_stamp_does_not_hide_that_one_is_late(void)
{
    struct stepaf_msg response;
    stepaf_request_h request;
    stepaf_timeline_t line = {.size = sizeof(line)};

    begin(STEPAF_ATTENTION, "on");
    for (int i = 0; i < LEARNT; i++)
        if (operate(300000)) {
            struct stepaf_msg told = tell_msg(seq - 1, stepaf_clock_ns(job->handle), WORK_NS);
            fake_tell(job, 0, &told);
        }
    int64_t away = 10 * longest_ns + 1000000;
    fake_forget(job);
    CU_ASSERT_EQUAL_FATAL(stepaf_start(plan, &request), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_timeline_query(request, 0, &line), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
    uint64_t stamp = stepaf_ticks();
    while (stepaf_clock_ns(job->handle) - line.start_ns < away) {
    }
    response = fake_msg(job, STEPAF_MSG_RESPONSE, 0, 0, seq++);
    response.flags = STEPAF_MSG_RELEASED;
    response.n_words = STEPAF_MSG_SIZES;
    response.word[STEPAF_MSG_WORK] = WORK_NS;
    job->ctx->up.polled = stamp;
    fake_tell(job, 0, &response);
    job->ctx->up.polled = 0;
    CU_ASSERT_EQUAL(stepaf_wait(request, 1000000), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_progress(job->handle), STEPAF_OK);
    CU_ASSERT_FATAL(fake_count(job, STEPAF_MSG_ASK) > 0);
    struct stepaf_msg told = tell_msg(seq - 1, line.start_ns + line.notified_ns, WORK_NS);
    fake_tell(job, 0, &told);
    stepaf_verdict_t verdict = verdict_on(seq - 1);
    CU_ASSERT(verdict.took_ns >= away);
    CU_ASSERT_EQUAL(verdict.phase, STEPAF_VERDICT_WAIT); /* this rank has not polled */
    CU_ASSERT(verdict.over_ns[STEPAF_VERDICT_WAIT] >= away / 2);
    end();
}

static void an_ffn_rank_is_told(void)
{
    stepaf_verdict_t verdicts[8];

    begin(STEPAF_FFN, "on");
    struct stepaf_msg told = fake_msg(job, STEPAF_MSG_TOLD, 3, 0, 9);
    told.word[STEPAF_MSG_PHASE] = STEPAF_VERDICT_LAST;
    uint64_t malformed = job->ctx->counters.dropped_malformed;
    fake_tell(job, 0, &told);
    CU_ASSERT_EQUAL(job->ctx->counters.dropped_malformed, malformed + 1);
    CU_ASSERT_EQUAL(read_all(verdicts, 8), 0);
    for (uint32_t phase = 0; phase < STEPAF_VERDICT_LAST; phase++) {
        told.word[STEPAF_MSG_PHASE] = phase;
        told.word[STEPAF_MSG_OVER] = 1000 + phase;
        fake_tell(job, 0, &told);
        CU_ASSERT(read_all(verdicts, 1) == 1);
        bool mine = phase == STEPAF_VERDICT_FFN_QUEUE || phase == STEPAF_VERDICT_FFN_WORK;
        CU_ASSERT_EQUAL(verdicts[0].peer, mine ? -1 : 0);
        CU_ASSERT_EQUAL(verdicts[0].phase, phase);
        CU_ASSERT_EQUAL(verdicts[0].over_ns[phase], 1000 + phase);
        CU_ASSERT_EQUAL(verdicts[0].plan, 3);
        CU_ASSERT_EQUAL(verdicts[0].sequence, 9);
        CU_ASSERT_EQUAL(verdicts[0].rail, -1);
    }
    told.word[STEPAF_MSG_RAIL] = 4;
    fake_tell(job, 0, &told);
    CU_ASSERT(read_all(verdicts, 1) == 1 && verdicts[0].rail == 3);
    CU_ASSERT_EQUAL(read_all(verdicts, 8), 8);
    stepaf_verdict_window_t window = {.size = sizeof(window)};
    CU_ASSERT_EQUAL(stepaf_verdict_query(job->handle, &window), STEPAF_OK);
    CU_ASSERT_EQUAL(window.rail, -1);
    end();
}

static void tools_and_memory_know_of_it(void)
{
    stepaf_memory_use_t on = {.size = sizeof(on)}, off = on;

    begin(STEPAF_ATTENTION, "off");
    CU_ASSERT_EQUAL(stepaf_memory_query(job->handle, &off), STEPAF_OK);
    stepaf_metrics_write(job->ctx);
    CU_ASSERT_EQUAL(job->ctx->polling.metrics->head->verdict.window_ns, 0);
    end();
    begin(STEPAF_ATTENTION, "on");
    learn();
    const struct stepaf_metrics_verdict *shown = &job->ctx->polling.metrics->head->verdict;
    CU_ASSERT_EQUAL(stepaf_memory_query(job->handle, &on), STEPAF_OK);
    CU_ASSERT(on.fixed >= off.fixed + sizeof(struct stepaf_verdict_state));
    CU_ASSERT(on.per_peer > off.per_peer && on.declared > off.declared);
    stepaf_window_add(stepaf_verdict_of(job->ctx),
                      &(stepaf_verdict_t){.phase = STEPAF_VERDICT_BACK,
                                          .usual_ns = 7,
                                          .over_ns = {[STEPAF_VERDICT_BACK] = 5}},
                      0);
    stepaf_verdict_of(job->ctx)->shown_ns = 0;
    stepaf_metrics_write(job->ctx);
    CU_ASSERT(shown->window_ns > 0 && shown->operations > 0 && shown->late >= 1);
    CU_ASSERT(shown->by_phase[STEPAF_VERDICT_BACK] >= 1 &&
              shown->over_ns[STEPAF_VERDICT_BACK] >= 5);
    CU_ASSERT(shown->phase != STEPAF_VERDICT_BACK ||
              shown->peer == job->ctx->peers[0].who.world_rank);
    end();
}

static void switched_off_there_is_none(void)
{
    stepaf_verdict_window_t window = {.size = sizeof(window)};
    stepaf_verdict_peer_t peer = {.size = sizeof(peer)};
    stepaf_verdict_t verdict;
    size_t n;

    begin(STEPAF_ATTENTION, "off");
    CU_ASSERT_EQUAL(stepaf_verdict_query(job->handle, &window), STEPAF_ERR_UNSUPPORTED);
    CU_ASSERT_EQUAL(stepaf_verdict_peer(job->handle, 0, &peer), STEPAF_ERR_UNSUPPORTED);
    CU_ASSERT_EQUAL(stepaf_verdict_read(job->handle, &verdict, sizeof(verdict), 1, &n),
                    STEPAF_ERR_UNSUPPORTED);
    struct stepaf_msg told = tell_msg(0, 1, 1);
    fake_tell(job, 0, &told);
    CU_ASSERT_FALSE(operate(0));
    end();
}

static void bad_arguments_are_refused(void)
{
    stepaf_verdict_window_t window = {.size = sizeof(window) - 1};
    stepaf_verdict_peer_t peer = {.size = sizeof(peer)};
    stepaf_verdict_t verdict;
    size_t n;

    begin(STEPAF_ATTENTION, "on");
    CU_ASSERT_EQUAL(stepaf_verdict_query(job->handle, &window), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_verdict_query(job->handle, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_verdict_query(NULL, &window), STEPAF_ERR_HANDLE);
    CU_ASSERT_EQUAL(stepaf_verdict_peer(job->handle, 1, &peer), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_verdict_peer(job->handle, -1, &peer), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_verdict_peer(job->handle, 0, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_verdict_read(job->handle, &verdict, sizeof(verdict) - 1, 1, &n),
                    STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_verdict_read(job->handle, NULL, sizeof(verdict), 1, &n),
                    STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_verdict_read(job->handle, &verdict, sizeof(verdict), 1, NULL),
                    STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_verdict_read(job->handle, NULL, sizeof(verdict), 0, &n), STEPAF_OK);
    UNIT_STRING(stepaf_verdict_phase_name(STEPAF_VERDICT_BACK), "way back");
    UNIT_STRING(stepaf_verdict_phase_name(STEPAF_VERDICT_LAST), "?");
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a late operation is asked about", a_late_operation_is_asked_about},
        {"what is slow for a while is late", what_is_slow_for_a_while_is_late},
        {"the log says it once", the_log_says_it_once},
        {"what was not asked for changes nothing", what_was_not_asked_for_changes_nothing},
        {"a time that cannot be is none", a_time_that_cannot_be_is_none},
        {"pauses are not taken for the usual", pauses_are_not_taken_for_the_usual},
        {"an answer of 32 bits is watched", an_answer_of_32_bits_is_watched},
        {"an FFN rank tells when", an_ffn_rank_tells_when},
        {"an FFN rank is told", an_ffn_rank_is_told},
        {"tools and memory know of it", tools_and_memory_know_of_it},
        {"an old stamp does not hide that one is late",
         an_old_stamp_does_not_hide_that_one_is_late},
        {"switched off there is none", switched_off_there_is_none},
        {"bad arguments are refused", bad_arguments_are_refused},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
