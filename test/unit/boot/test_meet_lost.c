/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that have met and end: in order, or not; and what goes on without them. */
#include <stdatomic.h>

#include "boot/boot_advance.h"
#include "meets.h"

enum { N = 7 };

static int dead_rank;
static _Atomic int n_ready; /* that have done all that they do together */

/* Wait for as many to be ready, without a word to them. */
static void await_ready(int n)
{
    int64_t limit_ns = stepaf_monotonic_ns() + MEET_LONG_US * 1000LL;

    n_ready++;
    while (n_ready < n && stepaf_monotonic_ns() < limit_ns)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* What the system does for a process that ends. */
static void die(struct meet *meet)
{
    struct stepaf_control *control = meet->boot.self;

    for (int rank = 0; rank < meet->size; rank++)
        if (control->links[rank])
            stepaf_control_link_close(control->links[rank], NULL, 0);
}

/* Until the one is reported, and no other. */
static void await_report(struct meet *meet, int rank)
{
    int64_t limit_ns = stepaf_monotonic_ns() + MEET_LONG_US * 1000LL;
    int lost[N] = {-1}, n = 0;

    while (n == 0 && stepaf_monotonic_ns() < limit_ns) {
        n = meet->boot.lost(meet->boot.self, lost, N);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    CU_ASSERT_EQUAL(n, 1);
    CU_ASSERT_EQUAL(lost[0], rank);
    CU_ASSERT_EQUAL(meet->boot.lost(meet->boot.self, lost, N), 0);
}

/* The living name the dead, and are a group all the same. */
static stepaf_status_t outlive(struct meet *meet)
{
    int ranks[N], n = 0;
    void *all = NULL;
    size_t offsets[N + 1];

    await_ready(N);
    if (meet->rank == dead_rank) {
        die(meet);
        return STEPAF_OK;
    }
    await_report(meet, dead_rank);
    for (int rank = 0; rank < N; rank++)
        if (rank != dead_rank)
            ranks[n++] = rank;
    stepaf_status_t status =
        meet->boot.barrier(meet->boot.self, STEPAF_GROUP_WORLD, ranks, n, meet->timeout_us);
    if (status != STEPAF_OK)
        return status;
    return meet->boot.allgather(meet->boot.self, "x", 1, &all, offsets, meet->timeout_us);
}

static void who_has_ended_is_named(void)
{
    static const int dead[] = {0, 3, N - 1};
    struct meet meets[N];
    char text[64];

    for (size_t d = 0; d < sizeof dead / sizeof *dead; d++) {
        dead_rank = dead[d];
        n_ready = 0;
        meet_prepare(meets, N, MEET_LONG_US);
        for (int i = 0; i < N; i++) {
            meets[i].secret = "s";
            meets[i].then = outlive;
        }
        meet_run(meets, N);
        snprintf(text, sizeof text, "exchange: world rank %d has ended", dead_rank);
        for (int i = 0; i < N; i++) {
            meet_expect(&meets[i], i == dead_rank ? STEPAF_OK : STEPAF_ERR_PEER_LOST,
                        i == dead_rank ? "" : text);
            if (i != dead_rank)
                CU_ASSERT_EQUAL(meets[i].error.peer_world_rank, dead_rank);
        }
    }
}

/* Who leaves in order is not lost, but cannot be waited for any more. */
static stepaf_status_t stay_or_leave(struct meet *meet)
{
    int lost[N];

    await_ready(N);
    if (meet->rank == N - 1)
        return STEPAF_OK;
    stepaf_status_t status = meet_barrier(meet, STEPAF_GROUP_WORLD, 0, 1);
    CU_ASSERT_EQUAL(meet->boot.lost(meet->boot.self, lost, N), 0);
    return status;
}

static void who_leaves_is_not_lost(void)
{
    struct meet meets[N];

    n_ready = 0;
    meet_prepare(meets, N, MEET_LONG_US);
    for (int i = 0; i < N; i++)
        meets[i].then = stay_or_leave;
    meet_run(meets, N);
    for (int i = 0; i < N - 1; i++)
        meet_expect(&meets[i], STEPAF_ERR_PEER_LOST, "barrier: world rank 6 has finalized");
}

/* Until the others have given an exchange up. */
static void await_failure(struct meet *meet)
{
    int64_t limit_ns = stepaf_monotonic_ns() + MEET_LONG_US * 1000LL;
    const struct stepaf_control *control = meet->boot.self;
    int lost[N];

    while (control->failures[STEPAF_CONTROL_EXCHANGE].status == STEPAF_OK &&
           stepaf_monotonic_ns() < limit_ns) {
        CU_ASSERT_EQUAL(meet->boot.lost(meet->boot.self, lost, N), 0);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

/* Who does not come to an exchange, though it lives. */
static stepaf_status_t come_late(struct meet *meet)
{
    size_t offsets[N + 1];
    void *all = NULL;

    if (meet->rank == 2)
        await_failure(meet);
    return meet->boot.allgather(meet->boot.self, "x", 1, &all, offsets, MEET_SOME_US);
}

static void who_is_late_is_named(void)
{
    struct meet meets[N];

    meet_prepare(meets, N, MEET_LONG_US);
    for (int i = 0; i < N; i++)
        meets[i].then = come_late;
    meet_run(meets, N);
    for (int i = 0; i < N; i++)
        meet_expect(&meets[i], STEPAF_ERR_TIMEOUT, "exchange: world rank 2 did not arrive in time");
}

/* Rank 0 goes on while it waits, until it is told to give up. */
static _Atomic int n_advances;
static int gives_up_at; /* 0: never */

static int64_t count_advance(void *arg)
{
    int n = ++n_advances;

    (void)arg;
    return gives_up_at && n >= gives_up_at ? -1 : 100;
}

static stepaf_status_t go_on_meanwhile(struct meet *meet)
{
    int64_t limit_ns = stepaf_monotonic_ns() + MEET_LONG_US * 1000LL;

    if (meet->rank == 0)
        stepaf_boot_set_advance(count_advance, NULL);
    else
        while (n_advances < 3 && stepaf_monotonic_ns() < limit_ns)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    stepaf_status_t status =
        meet->rank == 1 && gives_up_at ? STEPAF_OK : meet_barrier(meet, STEPAF_GROUP_WORLD, 0, 1);
    stepaf_boot_set_advance(NULL, NULL);
    return status;
}

static void who_waits_goes_on(void)
{
    struct meet meets[2];

    for (gives_up_at = 0; gives_up_at <= 3; gives_up_at += 3) {
        int64_t began_ns = stepaf_monotonic_ns();
        n_advances = 0;
        meet_prepare(meets, 2, MEET_LONG_US);
        for (int i = 0; i < 2; i++)
            meets[i].then = go_on_meanwhile;
        meet_run(meets, 2);
        CU_ASSERT(n_advances >= 3);
        CU_ASSERT(meets[1].status == STEPAF_OK);
        CU_ASSERT_EQUAL(meets[0].status == STEPAF_OK, !gives_up_at);
        CU_ASSERT(stepaf_monotonic_ns() - began_ns < MEET_LONG_US * 1000LL);
    }
}

/* A frame that somebody on the way has made. */
static stepaf_status_t receive_forgery(struct meet *meet)
{
    struct stepaf_control *control = meet->boot.self;
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_LOST, .number = 2};
    uint8_t mark[STEPAF_PROOF_MARK_BYTES] = {0};

    await_ready(3);
    if (meet->rank == 1) {
        CU_ASSERT_EQUAL(send(control->links[0]->fd, &frame, sizeof frame, MSG_NOSIGNAL),
                        sizeof frame);
        CU_ASSERT_EQUAL(send(control->links[0]->fd, mark, sizeof mark, MSG_NOSIGNAL), sizeof mark);
    }
    if (meet->rank == 0)
        await_report(meet, 1); /* the connection is over, and rank 2 is not lost */
    return STEPAF_OK;
}

static void nobody_speaks_for_a_rank(void)
{
    struct meet meets[3];

    n_ready = 0;
    meet_prepare(meets, 3, MEET_LONG_US);
    for (int i = 0; i < 3; i++) {
        meets[i].secret = "s";
        meets[i].then = receive_forgery;
    }
    meet_run(meets, 3);
    for (int i = 0; i < 3; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
}

/* A rank that is one, and sends blocks that are none. */
static stepaf_status_t exchange_nonsense(struct meet *meet)
{
    static const struct {
        uint64_t bytes[2];
        size_t length;
    } blocks[] = {{{100, 0}, 16}, {{UINT64_MAX, 0}, 16}, {{7, 0}, 16}, {{8, 1}, 12}, {{0, 0}, 7}};
    struct stepaf_control *control = meet->boot.self;
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_GATHER,
                                         .number = control->n_exchanges + 1,
                                         .bytes = blocks[meet->bytes].length};
    size_t offsets[N + 1];
    void *all = NULL;

    if (meet->rank == 0)
        return meet->boot.allgather(meet->boot.self, "x", 1, &all, offsets, meet->timeout_us);
    pthread_mutex_lock(&control->lock);
    stepaf_control_send(control->links[0], &frame, blocks[meet->bytes].bytes);
    pthread_mutex_unlock(&control->lock);
    await_failure(meet);
    return STEPAF_OK;
}

static void blocks_that_are_none(void)
{
    struct meet meets[2];

    for (size_t kind = 0; kind < 5; kind++) {
        meet_prepare(meets, 2, MEET_LONG_US);
        for (int i = 0; i < 2; i++) {
            meets[i].bytes = kind;
            meets[i].then = exchange_nonsense;
        }
        meet_run(meets, 2);
        meet_expect(&meets[0], STEPAF_ERR_PROTOCOL, "world rank 1 has sent malformed data");
        CU_ASSERT_EQUAL(meets[0].error.peer_world_rank, 1);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"who waits goes on", who_waits_goes_on},
        {"who has ended is named", who_has_ended_is_named},
        {"who leaves is not lost", who_leaves_is_not_lost},
        {"who is late is named", who_is_late_is_named},
        {"nobody speaks for a rank", nobody_speaks_for_a_rank},
        {"blocks that are none", blocks_that_are_none},
        CU_TEST_INFO_NULL,
    };
    meet_forget_launchers();
    return unit_run(tests);
}
