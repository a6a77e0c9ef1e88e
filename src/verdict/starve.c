/* SPDX-License-Identifier: Apache-2.0 */
/* How long a runnable thread has waited for a core. */
#include "verdict/starve.h"

#include <stdio.h>

#include "core/wait.h"
#include "topo/sys.h"

static const double USUAL_NS = 1e9;

/* Its address identifies the thread. */
static __thread char this_thread;

/* Read the kernel's "ns on a core, ns of waiting for one, times". Return -1 on failure. */
static int64_t read_waited_ns(void)
{
    char text[96];
    long long ran_ns, waited_ns;

    if (stepaf_sys_read(text, sizeof(text), "", "/proc/thread-self/schedstat") <= 0)
        return -1;
    return sscanf(text, "%lld %lld", &ran_ns, &waited_ns) == 2 ? waited_ns : -1;
}

/* Update the fraction of time that the thread waits, over the last second or so. */
static void learn_rate(struct stepaf_verdict_starve *starve, double waited_ns, double passed_ns)
{
    double weight = passed_ns / (passed_ns + USUAL_NS), rate = waited_ns / passed_ns;

    if (rate > 1)
        rate = 1;
    starve->usual = starve->usual < 0 ? rate : starve->usual + weight * (rate - starve->usual);
}

int64_t stepaf_starve_read(struct stepaf_verdict_state *state, uint64_t now, int64_t fresh_us)
{
    struct stepaf_verdict_starve *starve = &state->starve;
    bool same = starve->thread == &this_thread;

    if (same && now - starve->at < stepaf_ticks_of_us(state->ctx, fresh_us))
        return starve->last_ns;
    int64_t waited_ns = read_waited_ns();
    double grown = (double)(waited_ns - starve->waited_ns);
    double passed = (double)(now - starve->at) * state->ctx->clock.own.ns_per_tick;
    bool known = same && waited_ns >= 0 && starve->waited_ns >= 0 && passed > 0;
    starve->last_ns = -1;
    if (known && starve->usual >= 0) {
        double beyond = grown - starve->usual * passed;
        starve->last_ns = beyond > 0 ? (int64_t)beyond : 0;
    }
    if (known)
        learn_rate(starve, grown, passed);
    else
        starve->usual = -1;
    starve->thread = &this_thread;
    starve->waited_ns = waited_ns;
    starve->at = now;
    return starve->last_ns;
}
