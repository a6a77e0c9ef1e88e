/* SPDX-License-Identifier: Apache-2.0 */
/* Whose time it was: delays of several kinds are put in, one at a time and two at once, and the verdict on the
 * operation has to name the right phase and rank. Between them, and with --quiet-s alone, nobody is to be accused of
 * what he has not done: FFN ranks say what they know of themselves, and nothing is slow about the network.
 *
 * --times N        delays of each kind and size, at each attention rank in turn
 * --work-us N      how long an FFN rank takes for a batch
 * --kinds LIST     such as start,work; else all that the transport allows
 * --busy-s N       before, so long FFN ranks take four times as long, as on a machine that has been busy
 * --percent N      of each kind so many are to be right
 * --pairs 0|1      two at once as well
 * --quiet-s N      instead, so long without any delay
 * --pause-us N     before each operation, else 500
 * --bytes N        of each tensor, else next to none
 * --rails 2        there are so many: one of them is slow as well
 * --netem-there LIST, --netem-back LIST  interfaces, one for each rail, on which netem makes the network slow
 * --look-us N      FFN ranks look so often and sleep meanwhile; else they wait in the library
 * --by core        take the core from who is to be starved, instead of stopping him; takes the right to */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verdict_ask.h"

enum { PAUSE_US = 500, READ = 64 };

struct vd_shared *vd_shared;

/* FFN ranks are slow for a while, all operations alike: what is usual over half a minute is long
 * from then on. */
static bool be_busy(const struct hs_job *job, struct vd_attention *self)
{
    int64_t until = hs_now_ns() + hs_option_int(job, "--busy-s", 0) * 1000000000, took;
    bool good = true;

    while (good && hs_now_ns() < until)
        good = vd_operate(self, NULL, false, &took);
    vd_shared->busy--;
    return good;
}

/* ---- nothing is slow ---- */

static void stay_quiet(struct vd_attention *self, int64_t for_s)
{
    int64_t until = hs_now_ns() + for_s * 1000000000, took;
    uint64_t by_phase[STEPAF_VERDICT_PHASES] = {0}, late = 0, falsely = 0;
    uint32_t next = self->sequence, first = next;
    stepaf_verdict_t verdicts[READ];
    size_t n;

    while (hs_now_ns() < until) {
        if (!vd_operate(self, NULL, false, &took) ||
            !HS_OK(stepaf_verdict_read(self->job->ctx, verdicts, sizeof(verdicts[0]), READ, &n)))
            return;
        for (size_t i = 0; i < n; i++) {
            const stepaf_verdict_t *one = &verdicts[i];
            if (one->sequence < next)
                continue;
            next = one->sequence + 1;
            late++;
            by_phase[one->phase]++;
            if (one->peer >= 0 && !vd_admits(self, one)) {
                static const struct vd_delay none;
                falsely++;
                vd_describe(self, "falsely accused", &none, one);
            }
        }
    }
    printf("attention %d of %dA%dF: undisturbed: %u operations, %llu late, %llu peers falsely "
           "accused;",
           self->job->index, self->job->attn, self->job->ffn, self->sequence - first,
           (unsigned long long)late, (unsigned long long)falsely);
    for (int i = 0; i < STEPAF_VERDICT_LAST; i++)
        printf(" %s %llu", stepaf_verdict_phase_name((stepaf_verdict_phase_t)i),
               (unsigned long long)by_phase[i]);
    printf("\n");
    fflush(stdout);
    HS_INT(falsely, ==, 0);
}

/* ---- */

/* Of each tensor. */
static size_t tensor_bytes(const struct hs_job *job)
{
    return (size_t)hs_option_int(job, "--bytes", 64);
}

static bool make_plan(struct vd_attention *self, uint8_t *memory)
{
    size_t bytes = tensor_bytes(self->job);
    stepaf_tensor_t push = {VD_PUSH_KEY, memory, bytes}, pull[HS_MAX_RANKS];

    self->push = (struct vd_push *)memory;
    for (int p = 0; p < self->job->peers; p++)
        pull[p] = (stepaf_tensor_t){VD_PULL_KEY, memory + bytes * (size_t)(p + 1), bytes};
    return HS_OK(
        stepaf_plan_create(self->job->ctx, &push, 1, pull, self->job->peers, 0, &self->plan));
}

/* The window and its cells say the same as the verdicts. */
static void check_window(const struct vd_attention *self)
{
    stepaf_verdict_window_t window = {.size = sizeof(window)};
    stepaf_verdict_peer_t peer = {.size = sizeof(peer)};
    uint64_t of_peers = 0, by_phase = 0;

    if (!HS_OK(stepaf_verdict_query(self->job->ctx, &window)))
        return;
    for (int p = 0; p < self->job->peers; p++) {
        if (!HS_OK(stepaf_verdict_peer(self->job->ctx, stepaf_peer_rank(self->job->ctx, p), &peer)))
            return;
        of_peers += peer.late;
        printf("attention %d, FFN %d: %llu late:", self->job->index,
               stepaf_peer_rank(self->job->ctx, p), (unsigned long long)peer.late);
        for (int i = 0; i < STEPAF_VERDICT_LAST; i++)
            if (peer.by_phase[i])
                printf(" %s %llu", stepaf_verdict_phase_name((stepaf_verdict_phase_t)i),
                       (unsigned long long)peer.by_phase[i]);
        printf("\n");
    }
    for (int i = 0; i < STEPAF_VERDICT_LAST; i++)
        by_phase += window.by_phase[i];
    HS_INT(by_phase, ==, window.late);
    HS_INT(of_peers, <=, window.late);
    HS_INT(window.operations, >, 0);
}

static void ask_for(struct hs_job *job, uint8_t *memory, int64_t work_ns)
{
    struct vd_attention self = {
        .job = job, .work_ns = work_ns, .pause_us = hs_option_int(job, "--pause-us", PAUSE_US)};
    bool by_core = strcmp(hs_option_text(job, "--by", "stop"), "core") == 0;
    const char *netem = hs_option_text(job, "--netem-there", "");
    int64_t took, quiet_s = hs_option_int(job, "--quiet-s", 0);
    pid_t child;

    if (!make_plan(&self, memory) || !HS_OK(stepaf_commit(job->ctx)))
        return;
    child = quiet_s ? -1 : vd_stop_fork(job->index, by_core);
    if (*netem)
        HS_TRUE(vd_netem_open(netem, hs_option_text(job, "--netem-back", "")));
    vd_shared->busy++;
    hs_step("put in delays");
    if (be_busy(job, &self) && vd_measure(&self, VD_WARM_UP)) {
        printf("attention %d: median %lld us\n", job->index, (long long)self.median_ns / 1000);
        if (quiet_s)
            stay_quiet(&self, quiet_s);
        else
            vd_put_in(&self);
        check_window(&self);
    }
    (void)vd_operate(&self, NULL, true, &took);
    vd_netem_close();
    if (child > 0) {
        kill(child, SIGTERM);
        (void)waitpid(child, NULL, 0);
    }
}

static void body(struct hs_job *job)
{
    int64_t work_ns = hs_option_int(job, "--work-us", 3000) * 1000;
    stepaf_verdict_window_t window = {.size = sizeof(window)};
    size_t bytes = tensor_bytes(job);
    void *memory;

    setenv("STEPAF_VERDICT", "on", 1);
    if (!hs_open(job) ||
        !HS_OK(stepaf_key_declare(job->ctx, VD_PUSH_KEY, STEPAF_PUSH, bytes, NULL)) ||
        !HS_OK(stepaf_key_declare(job->ctx, VD_PULL_KEY, STEPAF_PULL, bytes, NULL)) ||
        !HS_OK(stepaf_alloc(job->ctx, bytes * (HS_MAX_RANKS + 1), STEPAF_MEM_HOST, &memory)))
        return;
    if (job->role == STEPAF_ATTENTION) {
        ask_for(job, memory, work_ns);
    } else if (HS_OK(stepaf_commit(job->ctx))) {
        hs_step("serve");
        vd_serve(job, memory, bytes, work_ns);
        if (HS_OK(stepaf_verdict_query(job->ctx, &window)))
            printf("FFN %d was told of %llu late operations\n", job->index,
                   (unsigned long long)window.late);
    }
    hs_sync(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "verdict",
                                        .options = "--times --work-us --kinds --busy-s --percent "
                                                   "--pairs --quiet-s --pause-us --look-us --by "
                                                   "--bytes --rails --netem-there --netem-back",
                                        .limit_s = 7200,
                                        .n_boots = 1,
                                        .body = body};

    vd_shared =
        mmap(NULL, sizeof(*vd_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (vd_shared == MAP_FAILED)
        return 1;
    return hs_main(argc, argv, &test);
}
