/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_set_interrupt: calls that wait for other ranks ask whether to go on, end when the answer is
 * no, and ask nobody otherwise. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"
#include "pair_rank.h"
#include "unit.h"

/* Far below the deadlines of the calls, which are half a minute or more. */
static const int64_t SOON_NS = 10000000000;

/* How often it has been asked; at what time it says that the call is to end. */
struct asker {
    int n, n_after; /* n_after: behind that answer */
    int64_t ends_ns;
    int ends_n; /* or by which question; 0: by none */
};

static int ask(void *arg)
{
    struct asker *asker = arg;
    asker->n++;
    int ends = stepaf_monotonic_ns() >= asker->ends_ns || asker->n == asker->ends_n;
    asker->n_after += asker->n_after || ends;
    return ends;
}

static struct asker begin_asking(void)
{
    return (struct asker){.ends_ns = stepaf_monotonic_ns() + 200000000};
}

/* It has ended in time, by the first answer that said so. */
static bool ended_well(const struct asker *asker, stepaf_status_t status, stepaf_phase_t phase)
{
    return status == STEPAF_ERR_CANCELED && stepaf_last_error()->phase == phase &&
           strstr(stepaf_last_error()->text, "interrupted") && asker->n_after == 1 &&
           asker->n <= 10 && stepaf_monotonic_ns() - asker->ends_ns < SOON_NS;
}

/* ---- alone ---- */

static void expect_init_ends(const char *const *settings)
{
    struct asker asker = begin_asking();
    stepaf_context_h ctx;

    for (int i = 0; settings[i]; i += 2)
        setenv(settings[i], settings[i + 1], 1);
    setenv("STEPAF_INIT_TIMEOUT_US", "60000000", 1);
    stepaf_set_interrupt(ask, &asker);
    CU_ASSERT_TRUE(ended_well(&asker, stepaf_init(NULL, NULL, &ctx), STEPAF_PHASE_INIT));
    stepaf_set_interrupt(NULL, NULL);
    for (int i = 0; settings[i]; i += 2)
        unsetenv(settings[i]);
    unsetenv("STEPAF_INIT_TIMEOUT_US");
}

static void an_init_ends(void)
{
    static const char *const hosts[] = {"127.0.0.1:47", "no-such-host.invalid:4747"};

    for (int rank = 0; rank < 2; rank++) {
        char number[] = {(char)('0' + rank), '\0'};
        const char *const local[] = {"STEPAF_LOCAL_SIZE",
                                     "2",
                                     "STEPAF_LOCAL_RANK",
                                     number,
                                     "STEPAF_LOCAL_JOB",
                                     "test",
                                     NULL};
        expect_init_ends(local);
    }
    for (int i = 0; i < 2; i++) { /* nobody listens there */
        const char *const tcp[] = {"STEPAF_SIZE", "2",      "STEPAF_RANK", "1",
                                   "STEPAF_MEET", hosts[i], NULL};
        expect_init_ends(tcp);
    }
    char meet[32];
    snprintf(meet, sizeof meet, "127.0.0.1:%u", 20000 + (unsigned)getpid() % 10000);
    const char *const host[] = {"STEPAF_SIZE", "2", "STEPAF_RANK", "0", "STEPAF_MEET", meet, NULL};
    expect_init_ends(host);
}

/* ---- a pair ---- */

static stepaf_status_t call_barrier(const struct pair_rank *rank)
{
    return stepaf_barrier(rank->ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT);
}

static stepaf_status_t call_commit(const struct pair_rank *rank)
{
    return stepaf_commit(rank->ctx);
}

static stepaf_status_t call_map_check(const struct pair_rank *rank)
{
    return stepaf_map_check(rank->ctx, STEPAF_TIMEOUT_DEFAULT, NULL);
}

enum { LARGE_KEY = 9, LARGE_BYTES = 16 << 20 };

struct call {
    stepaf_status_t (*call)(const struct pair_rank *rank);
    stepaf_phase_t phase;
    bool is_first; /* before the first commit */
    bool sends;    /* something that the other rank does not read meanwhile */
};

static int has_ended[2]; /* a pipe: the rank that calls has been interrupted */

/* Start an operation of which most stays queued. */
static int push_large(const struct pair_rank *rank)
{
    stepaf_tensor_t tensor = {.key = LARGE_KEY, .bytes = LARGE_BYTES};
    stepaf_request_h request;

    RANK_CHECK(rank->boot, stepaf_alloc(rank->ctx, LARGE_BYTES, STEPAF_MEM_HOST,
                                        (void **)&tensor.data) == STEPAF_OK);
    RANK_CHECK(rank->boot, stepaf_push_pull(rank->ctx, &tensor, 1, NULL, 0, &request) == STEPAF_OK);
    return 0;
}

/* Of two ranks one does not come to a call. */
static int interrupt_call(const stepaf_boot_t *boot, void *arg)
{
    const struct call *call = arg;
    struct pair_rank rank;

    if (call->sends)
        setenv("STEPAF_TRANSPORTS", "tcp", 1);
    if (pair_open(&rank, boot, "inline"))
        return 1;
    if (call->sends)
        RANK_CHECK(boot, stepaf_key_declare(rank.ctx, LARGE_KEY, STEPAF_PUSH, LARGE_BYTES, NULL) ==
                             STEPAF_OK);
    if (!call->is_first) {
        struct asker asker = {.ends_ns = INT64_MAX};
        stepaf_set_interrupt(ask, &asker);
        RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK); /* it goes on */
        RANK_CHECK(boot, !asker.n_after);
        RANK_CHECK(boot, stepaf_key_declare(rank.ctx, 10, STEPAF_PUSH, 64, NULL) == STEPAF_OK);
    }
    if (call->sends && !rank.ffn && push_large(&rank))
        return 1;
    if (rank.ffn && call->sends) {
        stepaf_batch_h batch;
        char byte;
        RANK_CHECK(boot, read(has_ended[0], &byte, 1) == 1);
        if (pair_receive(&rank, &batch)) /* what was queued is sent by the other's finalize */
            return 1;
        RANK_CHECK(boot, stepaf_release(batch) == STEPAF_OK);
    } else if (rank.ffn) {
        nanosleep(&(struct timespec){0, 600000000}, NULL);
    } else {
        struct asker asker = begin_asking();
        if (call->sends) {
            asker.ends_n = 3;
            asker.ends_ns = stepaf_monotonic_ns() + SOON_NS / 2;
        }
        stepaf_set_interrupt(ask, &asker);
        RANK_CHECK(boot, ended_well(&asker, call->call(&rank), call->phase));
        if (call->sends)
            RANK_CHECK(boot, write(has_ended[1], "", 1) == 1);
    }
    stepaf_set_interrupt(NULL, NULL);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void a_first_commit_ends(void)
{
    struct call call = {call_commit, STEPAF_PHASE_COMMIT, true, false};
    ranks_expect_processes(2, interrupt_call, &call);
}

static void a_later_commit_ends(void)
{
    struct call call = {call_commit, STEPAF_PHASE_COMMIT, false, false};
    ranks_expect_processes(2, interrupt_call, &call);
}

static void a_barrier_ends(void)
{
    struct call call = {call_barrier, STEPAF_PHASE_BARRIER, false, false};
    ranks_expect_processes(2, interrupt_call, &call);
}

static void a_check_of_the_map_ends(void)
{
    struct call call = {call_map_check, STEPAF_PHASE_NONE, false, false};
    ranks_expect_processes(2, interrupt_call, &call);
}

/* Also while they send what is queued. The interrupt is over with the call. */
static void calls_that_flush_end(void)
{
    struct call calls[] = {{call_barrier, STEPAF_PHASE_BARRIER, false, true},
                           {call_map_check, STEPAF_PHASE_NONE, false, true}};

    CU_ASSERT_EQUAL_FATAL(pipe(has_ended), 0);
    ranks_expect_processes(2, interrupt_call, &calls[0]);
    ranks_expect_processes(2, interrupt_call, &calls[1]);
    (void)close(has_ended[0]);
    (void)close(has_ended[1]);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"an init ends", an_init_ends},
        {"a first commit ends", a_first_commit_ends},
        {"a later commit ends", a_later_commit_ends},
        {"a barrier ends", a_barrier_ends},
        {"a check of the map ends", a_check_of_the_map_ends},
        {"calls that flush end", calls_that_flush_end},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
