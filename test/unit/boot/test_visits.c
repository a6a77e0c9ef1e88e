/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of the local bootstrap that ends while it comes to a meeting, just before it is counted in
 * or just after, or that cannot go on: the others are told at once. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stepaf/boot.h>

#include "boot/meeting.h"
#include "ranks.h"
#include "unit.h"

enum { RANKS = 3, LONG_US = 20000000, MEETINGS = 4 /* of two exchanges */ };

enum moment { BEFORE, AFTER };

/* When the process ends: with so many meetings to come. */
static int meetings_left = -1;
static enum moment moment;

enum stepaf_meeting_result __real_stepaf_meeting_join(struct stepaf_meeting *meeting, int n,
                                                      int spin,
                                                      const struct stepaf_meeting_watch *watch,
                                                      int64_t deadline_ns);
enum stepaf_meeting_result __wrap_stepaf_meeting_join(struct stepaf_meeting *meeting, int n,
                                                      int spin,
                                                      const struct stepaf_meeting_watch *watch,
                                                      int64_t deadline_ns);

enum stepaf_meeting_result __wrap_stepaf_meeting_join(struct stepaf_meeting *meeting, int n,
                                                      int spin,
                                                      const struct stepaf_meeting_watch *watch,
                                                      int64_t deadline_ns)
{
    struct stepaf_meeting_watch deadly = *watch;

    if (meetings_left-- == 0) {
        if (moment == BEFORE)
            kill(getpid(), SIGKILL);
        /* It has been counted in when it writes here. */
        deadly.visits =
            mmap(NULL, sizeof *deadly.visits, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        signal(SIGSEGV, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    }
    return __real_stepaf_meeting_join(meeting, n, spin, &deadly, deadline_ns);
}

struct end {
    int victim, meeting;
    enum moment moment;
};

static int one_ends(const stepaf_boot_t *boot, void *arg)
{
    const struct end *end = arg;
    size_t offsets[RANKS + 1];
    stepaf_status_t status = STEPAF_OK;

    if (boot->rank == end->victim) {
        meetings_left = end->meeting;
        moment = end->moment;
    }
    /* Where the victim was the last to be counted in, the others go on to their next meeting. */
    for (int i = 0; i < MEETINGS && status == STEPAF_OK; i++) {
        void *all = NULL;
        status = boot->allgather(boot->self, "x", 1, &all, offsets, LONG_US);
        free(all);
    }
    RANK_CHECK(boot, status == STEPAF_ERR_PEER_LOST);
    RANK_CHECK(boot, stepaf_last_error()->peer_world_rank == end->victim);
    return 0;
}

static void expect_news(struct end *end)
{
    int statuses[RANKS_MAX];

    ranks_run(RANKS, one_ends, end, statuses);
    for (int rank = 0; rank < RANKS; rank++)
        if (rank == end->victim)
            CU_ASSERT(WIFSIGNALED(statuses[rank]))
        else
            CU_ASSERT_EQUAL(statuses[rank], 0);
}

static void who_ends_uncounted(void)
{
    for (int meeting = 0; meeting < MEETINGS; meeting++)
        expect_news(&(struct end){meeting % RANKS, meeting, BEFORE});
}

static void who_ends_as_it_is_counted(void)
{
    for (int meeting = 0; meeting < MEETINGS; meeting++)
        expect_news(&(struct end){meeting % RANKS, meeting, AFTER});
}

/* What only one of them can see is why the others get nothing. */
static int one_may_not_write(const stepaf_boot_t *boot, void *arg)
{
    size_t offsets[RANKS + 1];
    void *all = NULL;

    (void)arg;
    if (boot->rank == 1)
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){0});
    RANK_CHECK(boot, boot->allgather(boot->self, "x", 1, &all, offsets, LONG_US) != STEPAF_OK);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "ulimit -f"));
    RANK_CHECK(boot, boot->rank == 1 || stepaf_last_error()->peer_world_rank == 1);
    return 0;
}

static void who_fails_is_named(void)
{
    ranks_expect_processes(RANKS, one_may_not_write, NULL);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"who ends uncounted", who_ends_uncounted},
        {"who ends as it is counted", who_ends_as_it_is_counted},
        {"who fails is named", who_fails_is_named},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
