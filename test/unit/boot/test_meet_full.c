/* SPDX-License-Identifier: Apache-2.0 */
/* A rank has no file descriptor left when it is its part to call another rank: it tries again until
 * its deadline, and then all learn which rank lacks what. */
#include <stdatomic.h>
#include <sys/resource.h>

#include "meets.h"

/* Exchanges connect ranks at distances of 1, 2 and 4: those of this barrier are not connected. */
enum { N = 8, LISTENER = 1, CALLER = 4, FULL_US = 50000 };

static atomic_int n_met, n_over;
static atomic_bool is_full;
static bool makes_room; /* in time */
static struct rlimit before;

static void wait_until(const atomic_int *n_p, int n)
{
    while (atomic_load(n_p) < n)
        usleep(1000);
}

/* Whatever number is asked for next, there is none. */
static void use_up(struct meet *meet)
{
    int lowest = dup(STDERR_FILENO);

    meet->wrong += lowest < 0 || getrlimit(RLIMIT_NOFILE, &before) != 0 ||
                   setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)lowest, before.rlim_max}) != 0;
    close(lowest);
    atomic_store(&is_full, true);
}

static void give_back(struct meet *meet)
{
    meet->wrong += setrlimit(RLIMIT_NOFILE, &before) != 0;
}

static stepaf_status_t meet_two(struct meet *meet)
{
    const int ranks[] = {LISTENER, CALLER};
    int64_t timeout_us = meet->rank == CALLER && !makes_room ? MEET_SHORT_US : MEET_LONG_US;
    stepaf_status_t status =
        meet->boot.barrier(meet->boot.self, STEPAF_GROUP_FFN, ranks, 2, timeout_us);

    if (meet->rank == CALLER && !makes_room)
        give_back(meet);
    atomic_fetch_add(&n_over, 1);
    return status;
}

static stepaf_status_t without_descriptors(struct meet *meet)
{
    int lost[N];

    atomic_fetch_add(&n_met, 1);
    wait_until(&n_met, N);
    if (meet->rank == CALLER)
        use_up(meet);
    while (!atomic_load(&is_full))
        usleep(1000);
    if (meet->rank == LISTENER || meet->rank == CALLER)
        return meet_two(meet);
    if (meet->rank == 0 && makes_room) {
        usleep(FULL_US);
        give_back(meet);
    }
    while (atomic_load(&n_over) < 2) { /* news goes round meanwhile */
        meet->wrong += meet->boot.lost(meet->boot.self, lost, N) != 0;
        usleep(1000);
    }
    return STEPAF_OK;
}

static void run_full(stepaf_status_t status, const char *text)
{
    struct meet meets[N];

    atomic_store(&n_met, 0);
    atomic_store(&n_over, 0);
    atomic_store(&is_full, false);
    meet_prepare(meets, N, MEET_LONG_US);
    for (int i = 0; i < N; i++)
        meets[i].then = without_descriptors;
    meet_run(meets, N);
    for (int i = 0; i < N; i++) {
        bool is_one = i == LISTENER || i == CALLER;
        meet_expect(&meets[i], is_one ? status : STEPAF_OK, is_one ? text : "");
        if (is_one && status) {
            CU_ASSERT_EQUAL(meets[i].error.peer_world_rank, CALLER);
            CU_ASSERT_EQUAL(meets[i].error.phase, STEPAF_PHASE_BARRIER);
        }
    }
}

static void who_lacks_descriptors_is_named(void)
{
    makes_room = false;
    run_full(STEPAF_ERR_TIMEOUT,
             "barrier: world rank 4 cannot reach world rank 1: Too many open files");
}

static void it_is_tried_again(void)
{
    makes_room = true;
    run_full(STEPAF_OK, "");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"who lacks descriptors is named", who_lacks_descriptors_is_named},
        {"it is tried again", it_is_tried_again},
        CU_TEST_INFO_NULL,
    };
    meet_forget_launchers();
    return unit_run(tests);
}
