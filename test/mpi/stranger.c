/* SPDX-License-Identifier: Apache-2.0 */
/* While a commit waits for its last rank, and until it is through, strangers besiege the port that
 * each FFN rank listens on: port scans, garbage, bytes that come one by one or not at all, and
 * greetings with a wrong proof. The commit succeeds, all bytes are right, every stranger is shown
 * out, and no socket stays.
 *
 * STEPAF_NET_PORTS has to name the ports, so that they are told from those of others. */
#include "stranger.h"
#include "fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 20000, ROUNDS = 20, SIEGE_MS = 8000, COMMIT_MS = 5000, STAMP_BESIEGED = 1 };

static struct stranger_ports ports;

static void *besiege(void *arg)
{
    struct stranger_siege *siege = arg;

    stranger_siege_run(siege);
    return NULL;
}

/* All rounds with the siege lifted: what the strangers left behind would show here. */
static void exchange(struct hs_job *job, struct fx_plan *plan)
{
    for (int round = 0; round < ROUNDS && job->role == STEPAF_ATTENTION; round++)
        if (!fx_exchange(plan))
            return;
    if (job->role == STEPAF_FFN)
        fx_serve(job, job->attn * ROUNDS);
}

/* How many of the first @a n FFN ranks are on this rank's host. All of its host's listeners are
 * there before an FFN rank besieges one: its own, or one that is as good. */
static int places(const struct hs_job *job, int n)
{
    int here = 0;

    if (getenv("TEST_ONE_NETWORK") != NULL) /* ranks of several nodes, but the same ports */
        return n;
    for (int f = 0; f < n; f++)
        here += hs_same_host(job, stepaf_world_rank(job->ctx, STEPAF_GROUP_FFN, f));
    return here;
}

/* The rank that all wait for in the commit comes when every place has its besiegers. */
static void come_late(struct hs_job *job)
{
    int64_t until = hs_now_ns() + SIEGE_MS * 1000000LL * hs_slow();

    while (atomic_load(&job->shared->stamp[STAMP_BESIEGED]) < job->ffn && hs_now_ns() < until)
        hs_sleep_us(1000);
    HS_INT(atomic_load(&job->shared->stamp[STAMP_BESIEGED]), ==, job->ffn);
}

static void commit_besieged(struct hs_job *job)
{
    struct stranger_siege siege = {
        .ports = ports, .n = places(job, job->ffn), .begun = &job->shared->stamp[STAMP_BESIEGED]};
    pthread_t thread;
    int64_t began;

    if (job->role == STEPAF_FFN)
        siege.index = places(job, job->index);
    if (job->role == STEPAF_FFN)
        pthread_create(&thread, NULL, besiege, &siege);
    if (job->rank == 0)
        come_late(job);
    began = hs_now_ns();
    HS_OK(stepaf_commit(job->ctx));
    HS_INT((hs_now_ns() - began) / 1000000, <=, (SIEGE_MS + COMMIT_MS) * hs_slow());
    if (job->role != STEPAF_FFN)
        return;
    atomic_store(&siege.over, true);
    pthread_join(thread, NULL);
    HS_INT(siege.stayed, ==, 0);
}

static void body(struct hs_job *job)
{
    const char *text = getenv("STEPAF_NET_PORTS");
    struct fx_plan plan;

    if (text == NULL || sscanf(text, "%hu-%hu", &ports.first, &ports.last) != 2) {
        HS_FAILED("STEPAF_NET_PORTS does not say first-last");
        return;
    }
    if (!hs_open(job) || !fx_declare(job, 0, BYTES, 1))
        return;
    if (job->role == STEPAF_ATTENTION && !fx_plan_make(job, 0, BYTES, 1, FX_BOTH, &plan))
        return;
    if (job->role == STEPAF_FFN && !fx_serve_open(job, BYTES))
        return;
    commit_besieged(job);
    hs_sync(job); /* an FFN rank listens until its last peer has come, which need not be this one */
    HS_INT(stranger_listeners(&ports, 0, NULL), ==, 0);
    exchange(job, &plan);
    hs_sync(job);
    hs_close(job);
    hs_pause(job);
    HS_INT(stranger_connections(&ports), ==, 0);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "stranger", .options = "", .limit_s = 60, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
