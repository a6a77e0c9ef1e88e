/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of an attention rank, with a delay or without, and the verdicts on them. */
#include <stdio.h>

#include "verdict_ask.h"

enum { READ = 64 };

/* How long this thread has waited for a core, ever. */
static int64_t read_starved_ns(void)
{
    long long ran_ns, waited_ns = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");

    if (file && fscanf(file, "%lld %lld", &ran_ns, &waited_ns) != 2)
        waited_ns = 0;
    if (file)
        fclose(file);
    return waited_ns;
}

/* Begin the delays of the network that are netem's; @a ends: or end them, when what they hold has
 * gone, since RDMA would take what overtakes it for lost packets. */
static void set_netem(const struct vd_delay *delay, bool ends)
{
    for (int k = 0; delay && k < VD_KINDS; k++)
        if (delay->ns[k] && vd_is_by_netem(k) && ends)
            hs_sleep_us(delay->ns[k] / 1000);
    for (int k = 0; delay && k < VD_KINDS; k++)
        if (delay->ns[k] && vd_is_by_netem(k))
            vd_netem_delay(k == VD_BACK || k == VD_RAIL_BACK,
                           vd_is_of_rail(k) ? delay->rail : VD_ALL_RAILS, ends ? 0 : delay->ns[k]);
}

void vd_set_order(const struct vd_attention *self, const struct vd_delay *delay, uint32_t sequence)
{
    struct vd_order *order = &vd_shared->orders[self->job->index];

    for (int k = 0; k < VD_KINDS; k++)
        order->delay_ns[k] = vd_is_by_netem(k) ? 0 : delay->ns[k];
    order->ffn = delay->ffn;
    order->rail = delay->rail;
    order->sequence = sequence;
}

/* One operation, which is slow as @a delay says; NULL: it is not. */
bool vd_operate(struct vd_attention *self, const struct vd_delay *delay, bool last, int64_t *took_p)
{
    struct vd_order *order = &vd_shared->orders[self->job->index];
    stepaf_request_h request;

    int64_t starved = delay ? read_starved_ns() : 0;

    *self->push = (struct vd_push){self->sequence, last};
    set_netem(delay, false);
    hs_sleep_us(self->pause_us + (delay ? delay->ns[VD_START] / 1000 : 0));
    int64_t began = hs_now_ns();
    if (!HS_OK(stepaf_start(self->plan, &request)))
        return false;
    order->started_ns = began;
    order->started = self->sequence + 1;
    if (delay && delay->ns[VD_WAIT])
        hs_sleep_us((self->median_ns + delay->ns[VD_WAIT]) / 1000);
    if (delay && delay->ns[VD_STARVED])
        vd_shared->stop_ns[self->job->index] = self->median_ns + delay->ns[VD_STARVED];
    if (!HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)))
        return false;
    *took_p = self->took_ns = hs_now_ns() - began;
    set_netem(delay, true);
    self->starved_ns = delay ? read_starved_ns() - starved : 0;
    self->sequence++;
    return true;
}

/* The verdict on operation @a sequence; false: none has come. */
bool vd_find_verdict(struct vd_attention *self, uint32_t sequence, stepaf_verdict_t *verdict_p)
{
    stepaf_verdict_t verdicts[READ];
    int64_t until = hs_now_ns() + 1500000000;
    size_t n;

    do {
        if (!HS_OK(stepaf_progress(self->job->ctx)) ||
            !HS_OK(stepaf_verdict_read(self->job->ctx, verdicts, sizeof(verdicts[0]), READ, &n)))
            return false;
        for (size_t i = n; i-- > 0;)
            if (verdicts[i].sequence == sequence) {
                *verdict_p = verdicts[i];
                return true;
            }
        hs_sleep_us(200);
    } while (hs_now_ns() < until);
    return false;
}

/* The median of some operations without a delay. */
bool vd_measure(struct vd_attention *self, int n)
{
    int64_t took[VD_WARM_UP];

    for (int i = 0; i < n; i++) {
        int at = i;
        int64_t ns;
        if (!vd_operate(self, NULL, false, &ns))
            return false;
        for (; at > 0 && took[at - 1] > ns; at--)
            took[at] = took[at - 1];
        took[at] = ns;
    }
    self->median_ns = took[n / 2];
    return true;
}
