/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement on links to ranks that have returned, over a transport whose links have to be proven:
 * who is lost where no data gets through, and when. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <stepaf/stepaf.h>

#include "base/interrupt.h"
#include "base/time.h"
#include "core/ctx.h"
#include "fake.h"
#include "unit.h"
#include "wireup/connect.h"

enum { SOON_MS = 2000, LATE_MS = 60000, SIZE = 3, FIRST_WAIT_MS = 50 /* as agree.c has it */ };

/* The test's transport: what it says of each peer's link, and when. */
static struct {
    stepaf_status_t status[SIZE - 1]; /* until the link is cut */
    int64_t takes_ns; /* INPROGRESS becomes OK so long after the first call with begin */
    int64_t begun_ns;
    int64_t stalls_ns; /* so long at a look 50 ms after that; 0: never */
} links;
static struct fake_job *job;
static stepaf_boot_t real;
static int64_t others_take_ns; /* until they come to one exchange, ... */
static int held_up_at;         /* ... which is this one */
static int n_exchanges;
static int is_interrupted_in; /* so many exchanges; 0: no */

static stepaf_status_t prove_links(struct stepaf_transport *transport, bool begin, uint32_t *peer_p,
                                   char *reason)
{
    stepaf_status_t status = STEPAF_OK;

    (void)transport;
    if (begin && !links.begun_ns)
        links.begun_ns = stepaf_monotonic_ns();
    if (links.stalls_ns && begin &&
        stepaf_monotonic_ns() - links.begun_ns >= FIRST_WAIT_MS * 1000000LL) {
        const struct timespec pause = {links.stalls_ns / 1000000000, links.stalls_ns % 1000000000};
        links.stalls_ns = 0;
        (void)nanosleep(&pause, NULL);
    }
    for (uint32_t p = 0; p < job->ctx->n_peers; p++) {
        bool is_up = links.takes_ns && links.begun_ns &&
                     stepaf_monotonic_ns() - links.begun_ns >= links.takes_ns;
        if (job->ctx->peers[p].lost || !links.status[p] ||
            (links.status[p] == STEPAF_INPROGRESS && is_up))
            continue;
        status = links.status[p];
        *peer_p = p;
        if (status == STEPAF_ERR_NO_TRANSPORT && begin) {
            (void)snprintf(reason, STEPAF_REASON_MAX, "nothing gets through");
            return status;
        }
        status = STEPAF_INPROGRESS;
    }
    return status;
}

static int stop(void *arg)
{
    (void)arg;
    return 1;
}

static void interrupt(void)
{
    stepaf_set_interrupt(stop, NULL);
    stepaf_interrupt_begin();
}

static stepaf_status_t exchange(void *self, const void *data, size_t bytes, void **all_p,
                                size_t *offsets_p, int64_t timeout_us)
{
    const struct timespec pause = {others_take_ns / 1000000000, others_take_ns % 1000000000};

    if (n_exchanges++ == held_up_at)
        (void)nanosleep(&pause, NULL);
    if (is_interrupted_in && !--is_interrupted_in)
        interrupt();
    return real.allgather(self, data, bytes, all_p, offsets_p, timeout_us);
}

/* An attention rank in its second commit, in which its last peer has returned, or itself. */
static void begin(bool has_returned_itself)
{
    static struct stepaf_transport_ops ops;
    struct fake_job *other = fake_open(STEPAF_FFN, 1, SIZE - 1);

    job = fake_open(STEPAF_ATTENTION, 1, SIZE - 1);
    struct stepaf_ctx *ctx = job->ctx;
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, other), STEPAF_OK);
    fake_close(other);
    ctx->epoch = 2;
    ctx->job.members.returned[has_returned_itself ? 0 : SIZE - 1] = 1;
    ctx->job.members.is_on_trial = has_returned_itself;
    memset(ctx->job.members.present, 1, SIZE);
    ops = *ctx->net.transports[0]->ops;
    ops.prove_links = prove_links;
    ctx->net.transports[0]->ops = &ops;
    real = ctx->job.boot;
    ctx->job.boot.allgather = exchange;
    memset(&links, 0, sizeof(links));
    n_exchanges = 0;
    others_take_ns = 0;
    held_up_at = 0;
}

static stepaf_status_t agree(int ms)
{
    size_t offsets[SIZE + 1];

    return stepaf_ranks_agree(job->ctx, NULL, STEPAF_INPROGRESS, offsets, stepaf_monotonic_ns(),
                              stepaf_deadline_ns(ms * 1000LL));
}

static bool is_lost(int p)
{
    return job->ctx->peers[p].lost;
}

static void nothing_gets_through_to_it(void)
{
    begin(false);
    links.status[1] = STEPAF_ERR_NO_TRANSPORT;
    CU_ASSERT_EQUAL(agree(LATE_MS), STEPAF_OK);
    CU_ASSERT(!is_lost(0) && is_lost(1));
    CU_ASSERT_PTR_NOT_NULL(strstr(job->ctx->peers[1].reason, "nothing gets through"));
    fake_close(job);
}

/* Both are lost in one go. */
static void nothing_gets_through_to_two(void)
{
    begin(false);
    job->ctx->job.members.returned[1] = 1;
    links.status[0] = links.status[1] = STEPAF_ERR_NO_TRANSPORT;
    CU_ASSERT_EQUAL(agree(LATE_MS), STEPAF_OK);
    CU_ASSERT(is_lost(0) && is_lost(1));
    CU_ASSERT_EQUAL(n_exchanges, 2); /* before it, and after it */
    fake_close(job);
}

/* It is lost when half of the time has passed. */
static void nothing_is_heard_of_it(void)
{
    begin(false);
    links.status[1] = STEPAF_INPROGRESS;
    int64_t began_ns = stepaf_monotonic_ns();
    CU_ASSERT_EQUAL(agree(SOON_MS), STEPAF_OK);
    CU_ASSERT(stepaf_monotonic_ns() - began_ns >= SOON_MS / 2 * 1000000LL);
    CU_ASSERT(!is_lost(0) && is_lost(1));
    fake_close(job);
}

/* More than half of the time passes until all have connected; then the link is proven soon. */
static void a_member_is_slow(void)
{
    begin(false);
    links.status[1] = STEPAF_INPROGRESS;
    links.takes_ns = SOON_MS / 100 * 1000000LL;
    others_take_ns = SOON_MS / 2 * 1000000LL;
    CU_ASSERT_EQUAL(agree(SOON_MS), STEPAF_OK);
    CU_ASSERT(!is_lost(0) && !is_lost(1));
    fake_close(job);
}

/* The same when all have connected, and have waited for the link once: it is proven a moment after
 * the member has come. */
static void a_member_is_held_up(void)
{
    begin(false);
    links.status[1] = STEPAF_INPROGRESS;
    others_take_ns = SOON_MS / 2 * 1000000LL + FIRST_WAIT_MS * 1000000LL;
    links.takes_ns = others_take_ns + 2 * FIRST_WAIT_MS * 1000000LL;
    held_up_at = 1;
    CU_ASSERT_EQUAL(agree(SOON_MS), STEPAF_OK);
    CU_ASSERT(!is_lost(0) && !is_lost(1));
    CU_ASSERT(n_exchanges > 2);
    fake_close(job);
}

/* The same for this rank itself. */
static void this_member_is_held_up(void)
{
    begin(false);
    links.status[1] = STEPAF_INPROGRESS;
    links.stalls_ns = SOON_MS / 2 * 1000000LL + FIRST_WAIT_MS * 1000000LL;
    links.takes_ns = links.stalls_ns + 3 * FIRST_WAIT_MS * 1000000LL;
    CU_ASSERT_EQUAL(agree(SOON_MS), STEPAF_OK);
    CU_ASSERT(!is_lost(0) && !is_lost(1));
    fake_close(job);
}

/* Neither before all have connected nor later. */
static void an_interrupt_loses_nobody(void)
{
    for (int i = 0; i < 2; i++) {
        begin(false);
        links.status[1] = STEPAF_INPROGRESS;
        if (i)
            is_interrupted_in = 1; /* exchanges */
        else
            interrupt();
        CU_ASSERT_EQUAL(stepaf_interrupt_end(agree(LATE_MS), STEPAF_PHASE_COMMIT),
                        STEPAF_ERR_CANCELED);
        stepaf_set_interrupt(NULL, NULL);
        CU_ASSERT(!is_lost(0) && !is_lost(1));
        fake_close(job);
    }
}

static void check_failure(int peer)
{
    links.status[peer] = STEPAF_ERR_NO_TRANSPORT;
    CU_ASSERT_EQUAL(agree(LATE_MS), STEPAF_ERR_NO_TRANSPORT);
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, 1 + peer);
    CU_ASSERT(!is_lost(0) && !is_lost(1));
    fake_close(job);
}

static void nothing_gets_through_to_a_member(void)
{
    begin(false);
    check_failure(0);
}

static void this_rank_has_returned(void)
{
    begin(true);
    check_failure(1);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nothing gets through to a peer that has returned", nothing_gets_through_to_it},
        {"nothing gets through to two", nothing_gets_through_to_two},
        {"nothing is heard of it", nothing_is_heard_of_it},
        {"a member is slow", a_member_is_slow},
        {"a member is held up", a_member_is_held_up},
        {"this member is held up", this_member_is_held_up},
        {"an interrupt loses nobody", an_interrupt_loses_nobody},
        {"nothing gets through to a member", nothing_gets_through_to_a_member},
        {"nothing gets through, and this rank has returned", this_rank_has_returned},
        CU_TEST_INFO_NULL,
    };

    return unit_run(tests);
}
