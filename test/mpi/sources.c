/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation's tensor lies in memory that is registered for it alone, and gone as soon as the
 * answers are there: no transport reads it any more. */
#include "fixture.h"

#include <sys/mman.h>

enum { BYTES = 16384 };

/* One operation, from @a memory. */
static bool exchange(struct hs_job *job, struct fx_plan *plan, void *memory, size_t bytes)
{
    stepaf_request_h request = NULL;
    struct fx_plan here = *plan;

    here.source = memory;
    here.bytes = bytes;
    if (!HS_OK(stepaf_register(job->ctx, memory, BYTES)) ||
        !HS_OK(fx_start(&here, STEPAF_START_WAIT, &request)) ||
        !HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)) ||
        !HS_OK(stepaf_deregister(job->ctx, memory)))
        return false;
    plan->next = here.next;
    plan->last[0] = here.last[0];
    return fx_verify(plan, plan->next - 1, -1);
}

static void attend(struct hs_job *job, struct fx_plan *plan, long ops)
{
    bool good = true;

    for (long i = 0; i < ops && good; i++) {
        size_t bytes = i % 2 == 0 ? 1 + hs_mix((uint64_t)i) % 200 : 1 + hs_mix((uint64_t)i) % BYTES;
        void *memory =
            mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        good = HS_TRUE(memory != MAP_FAILED) && exchange(job, plan, memory, bytes) &&
               HS_TRUE(munmap(memory, BYTES) == 0);
    }
}

static void body(struct hs_job *job)
{
    long ops = hs_option_int(job, "--ops", 1000);
    struct fx_plan plan;

    if (!hs_open(job) || !fx_open(job, 1, BYTES, 1, FX_BOTH, &plan))
        return;
    hs_step("exchange");
    if (job->role == STEPAF_FFN)
        fx_serve(job, (int)ops * job->attn);
    else
        attend(job, &plan, ops);
    hs_sync(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "sources", .options = "--ops", .limit_s = 120, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
