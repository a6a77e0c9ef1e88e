/* SPDX-License-Identifier: Apache-2.0 */
/* How long a rank waits, in a commit, for a peer that has returned in that commit, and when the rank
 * continues without the peer: once the time for the peer has passed, and for no other reason. */
#include <stdlib.h>

#include <stepaf/stepaf.h>

#include "base/interrupt.h"
#include "base/time.h"
#include "core/clock.h"
#include "core/peer.h"
#include "fake.h"
#include "unit.h"
#include "wireup/ready.h"

enum { SOON_MS = 40, LATE_MS = 60000 };

/* A phase of a commit. */
typedef stepaf_status_t (*phase_fn)(struct stepaf_ctx *ctx, int64_t deadline_ns);

struct pair {
    struct fake_job *job, *other;
    struct stepaf_peer *silent;
};

/* A rank in a commit in which its last peer has returned and says nothing. The members' deadline is
 * @a members_ms away. */
static struct pair begin(stepaf_role_t role, int members_ms, bool has_returned_itself)
{
    bool attention = role == STEPAF_ATTENTION;
    int n_ffn = attention ? 2 : 1;
    struct pair pair = {.job = fake_open(role, 1, n_ffn),
                        .other = fake_open(attention ? STEPAF_FFN : STEPAF_ATTENTION, 1, n_ffn)};
    struct stepaf_ctx *ctx = pair.job->ctx;

    CU_ASSERT_EQUAL_FATAL(fake_commit(pair.job, pair.other), STEPAF_OK);
    pair.silent = &ctx->peers[ctx->n_peers - 1];
    ctx->job.members.returned[pair.silent->who.world_rank] = 1;
    ctx->job.members.returned[ctx->job.boot.rank] = has_returned_itself;
    ctx->commit.members_deadline_ns = stepaf_deadline_ns(members_ms * 1000LL);
    ctx->env.clock = STEPAF_ENV_CLOCK_ping;
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        ctx->peers[p].clock.synced = true;
    pair.silent->clock.synced = false;
    pair.silent->ready_epoch = 0;
    return pair;
}

static void end(struct pair *pair)
{
    fake_close(pair->job);
    fake_close(pair->other);
}

/* In these the peer's silence is waited for: for READY, for its pings, for its answers to pings. */
static const struct {
    stepaf_role_t role;
    phase_fn phase;
} phases[] = {{STEPAF_ATTENTION, stepaf_commit_handshake},
              {STEPAF_ATTENTION, stepaf_clock_sync},
              {STEPAF_FFN, stepaf_clock_sync}};
enum { PHASES = sizeof(phases) / sizeof(phases[0]) };

static void the_time_for_the_peer_passes(void)
{
    for (int i = 0; i < 2 * PHASES; i++) {
        struct pair pair = begin(phases[i / 2].role, SOON_MS, i % 2);
        int64_t began_ns = stepaf_monotonic_ns();
        CU_ASSERT_EQUAL(phases[i / 2].phase(pair.job->ctx, stepaf_deadline_ns(LATE_MS * 1000LL)),
                        STEPAF_OK);
        CU_ASSERT(stepaf_monotonic_ns() - began_ns >=
                  (i % 2 ? SOON_MS / 8 : SOON_MS / 4) * 1000000LL);
        CU_ASSERT_TRUE(pair.silent->lost);
        end(&pair);
    }
}

/* The last peer, once the time for peers that have returned is over. */
static void come_late(struct fake_job *job)
{
    struct stepaf_ctx *ctx = job->ctx;
    struct stepaf_peer *last = &ctx->peers[ctx->n_peers - 1];

    if (stepaf_monotonic_ns() < ctx->commit.members_deadline_ns)
        return;
    last->ready_epoch = ctx->epoch;
    last->clock.synced = true;
}

/* The first peer has returned and is silent, the last one has not and is only slow. */
static void other_peers_have_more_time(void)
{
    for (int i = 0; phases[i].role == STEPAF_ATTENTION; i++) {
        struct pair pair = begin(STEPAF_ATTENTION, SOON_MS, false);
        struct stepaf_ctx *ctx = pair.job->ctx;
        struct stepaf_peer *first = &ctx->peers[0];
        ctx->job.members.returned[pair.silent->who.world_rank] = 0;
        ctx->job.members.returned[first->who.world_rank] = 1;
        first->ready_epoch = 0;
        first->clock.synced = false;
        pair.job->on_progress = come_late;
        CU_ASSERT_EQUAL(phases[i].phase(ctx, stepaf_deadline_ns(LATE_MS * 1000LL)), STEPAF_OK);
        CU_ASSERT(first->lost && !pair.silent->lost);
        end(&pair);
    }
}

/* A rank that has returned with little time left fails alone. */
static void the_own_deadline_is_earlier(void)
{
    for (int i = 0; i < PHASES; i++) {
        struct pair pair = begin(phases[i].role, LATE_MS, true);
        CU_ASSERT_EQUAL(phases[i].phase(pair.job->ctx, stepaf_deadline_ns(SOON_MS * 1000LL)),
                        STEPAF_ERR_TIMEOUT);
        CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, pair.silent->who.world_rank);
        CU_ASSERT_FALSE(pair.silent->lost);
        end(&pair);
    }
}

static int stop(void *arg)
{
    (void)arg;
    return 1;
}

static void an_interrupt_loses_nobody(void)
{
    for (int i = 0; i < PHASES; i++) {
        struct pair pair = begin(phases[i].role, LATE_MS, false);
        stepaf_set_interrupt(stop, NULL);
        stepaf_interrupt_begin();
        stepaf_status_t status =
            phases[i].phase(pair.job->ctx, stepaf_deadline_ns(LATE_MS * 1000LL));
        CU_ASSERT_EQUAL(stepaf_interrupt_end(status, STEPAF_PHASE_COMMIT), STEPAF_ERR_CANCELED);
        stepaf_set_interrupt(NULL, NULL);
        CU_ASSERT_FALSE(pair.silent->lost);
        end(&pair);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the time for the peer passes", the_time_for_the_peer_passes},
        {"other peers have more time", other_peers_have_more_time},
        {"the own deadline is earlier", the_own_deadline_is_earlier},
        {"an interrupt loses nobody", an_interrupt_loses_nobody},
        CU_TEST_INFO_NULL,
    };

    return unit_run(tests);
}
