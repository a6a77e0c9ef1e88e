/* SPDX-License-Identifier: Apache-2.0 */
/* A rank stops in the middle of an exchange, or before a barrier: all others name this one, and not
 * those that it keeps waiting, whoever gives up first. */
#include "meets.h"

enum { N = 8, STOPPED = 5, WAIT_US = 1500000 };

static int impatient; /* who gives up first */

static int64_t patience_of(const struct meet *meet)
{
    return meet->rank == impatient ? WAIT_US / 2 : WAIT_US;
}

/* What a rank says before it stops: the first round of an exchange. */
static void say_first_round(const struct meet *meet)
{
    struct stepaf_control *control = meet->boot.self;
    uint64_t block[2] = {sizeof(uint64_t), 0};
    struct stepaf_control_frame frame = {
        .type = STEPAF_CONTROL_GATHER, .number = control->n_exchanges + 1, .bytes = sizeof block};

    stepaf_control_send(control->links[meet->rank - 1], &frame, block);
}

/* The others begin one exchange, and some of them the next. */
static stepaf_status_t stop_in_an_exchange(struct meet *meet)
{
    stepaf_status_t status = STEPAF_OK;

    if (meet->rank == STOPPED) {
        say_first_round(meet);
        usleep(2 * WAIT_US);
        return STEPAF_OK;
    }
    for (int i = 0; i < 2 && status == STEPAF_OK; i++) {
        void *all = NULL;
        size_t offsets[N + 1];
        status =
            meet->boot.allgather(meet->boot.self, "12345678", 8, &all, offsets, patience_of(meet));
        free(all);
    }
    return status;
}

static stepaf_status_t stop_before_a_barrier(struct meet *meet)
{
    if (meet->rank == STOPPED) {
        usleep(2 * WAIT_US);
        return STEPAF_OK;
    }
    meet->timeout_us = patience_of(meet);
    return meet_barrier(meet, STEPAF_GROUP_WORLD, 0, 1);
}

static void run_and_expect(stepaf_status_t (*then)(struct meet *meet), const char *text)
{
    struct meet meets[N];

    meet_prepare(meets, N, MEET_LONG_US);
    for (int i = 0; i < N; i++)
        meets[i].then = then;
    meet_run(meets, N);
    for (int i = 0; i < N; i++) {
        meet_expect(&meets[i], i == STOPPED ? STEPAF_OK : STEPAF_ERR_TIMEOUT,
                    i == STOPPED ? "" : text);
        if (i != STOPPED)
            CU_ASSERT_EQUAL(meets[i].error.peer_world_rank, STOPPED);
    }
}

/* Rank 7 waits in the same exchange for rank 3, which waits for the stopped one; rank 2 waits for rank 3 in
 * the next one. */
static void who_stops_in_an_exchange_is_named(void)
{
    for (int i = 0; i < 2; i++) {
        impatient = i ? 2 : 7;
        run_and_expect(stop_in_an_exchange, "exchange: world rank 5");
    }
}

/* Rank 3 waits for rank 1, and that for the stopped one. */
static void who_does_not_come_to_a_barrier_is_named(void)
{
    impatient = 3;
    run_and_expect(stop_before_a_barrier, "barrier: world rank 5");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"who stops in an exchange is named", who_stops_in_an_exchange_is_named},
        {"who does not come to a barrier is named", who_does_not_come_to_a_barrier_is_named},
        CU_TEST_INFO_NULL,
    };
    meet_forget_launchers();
    return unit_run(tests);
}
