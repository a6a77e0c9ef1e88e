/* SPDX-License-Identifier: Apache-2.0 */
/* Three microbatches in turn, for long, with sizes that change from one operation to the next:
 * every byte is looked at, and once all has been in use, memory does not grow any more. */
#include "fixture.h"

#include <stdio.h>
#include <string.h>

enum {
    PLANS = 3,
    DEPTH = 2,
    /* Operations in which memory is touched for the first time: stamps' ring. More by --warm, where
     * a library below touches some of its own for longer. */
    WARM = 5000,
    GROWTH = 512 * 1024 /* of resident memory: pages that MPI touches late */
};

/* Sanitizers keep what was freed, and more about what is there: then only the library is asked. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool watches_pages = false;
#else
static const bool watches_pages = true;
#endif

static const size_t sizes[PLANS] = {64, 3000, 40000};

struct use {
    stepaf_memory_use_t library;
    long resident;
};

static struct use look_at_memory(struct hs_job *job)
{
    struct use use;

    memset(&use, 0, sizeof(use));
    use.library.size = sizeof(use.library);
    HS_OK(stepaf_memory_query(job->ctx, &use.library));
    use.resident = (long)hs_resident_bytes();
    HS_INT(use.resident, >, 0);
    return use;
}

static void compare(struct hs_job *job, const struct use *warm)
{
    struct use now = look_at_memory(job);
    stepaf_counters_t counters = {.size = sizeof(counters)};

    HS_TRUE(memcmp(&now.library, &warm->library, sizeof(now.library)) == 0);
    if (watches_pages)
        HS_INT(now.resident - warm->resident, <=, GROWTH);
    HS_OK(stepaf_counters_query(job->ctx, &counters));
    HS_INT(counters.dropped_malformed + counters.dropped_stale, ==, 0);
    HS_INT(counters.peers_lost, ==, 0);
    printf("soak: rank %d: %ld KiB resident, %ld KiB more than when it was warm\n", job->rank,
           now.resident / 1024, (now.resident - warm->resident) / 1024);
}

/* Start with some of the plan's bytes. */
static bool start(struct fx_plan *plan, uint64_t number, stepaf_request_h *request_p)
{
    struct fx_plan some = *plan;

    some.bytes = number % 4 == 0 ? plan->bytes : 1 + hs_mix(number) % plan->bytes;
    if (!HS_OK(fx_start(&some, STEPAF_START_WAIT, request_p)))
        return false;
    plan->next = some.next;
    memcpy(plan->last, some.last, sizeof(plan->last));
    return true;
}

static bool finish(struct fx_plan *plan, stepaf_request_h request)
{
    return HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)) &&
           fx_verify(plan, plan->next - 1, -1);
}

static void attend(struct hs_job *job, struct fx_plan *plans, long ops, long warm_at)
{
    stepaf_request_h requests[PLANS] = {NULL};
    struct use warm = {.resident = 0};

    for (long i = 0; i < ops + PLANS; i++) {
        struct fx_plan *plan = &plans[i % PLANS];
        if (i >= PLANS && !finish(plan, requests[i % PLANS]))
            return;
        if (i == warm_at)
            warm = look_at_memory(job);
        if (i < ops && !start(plan, (uint64_t)i, &requests[i % PLANS]))
            return;
    }
    compare(job, &warm);
}

static void serve(struct hs_job *job, long ops, long warm_at)
{
    if (!fx_serve(job, (int)(warm_at * job->attn)))
        return;
    struct use warm = look_at_memory(job);
    if (fx_serve(job, (int)((ops - warm_at) * job->attn)))
        compare(job, &warm);
}

static void body(struct hs_job *job)
{
    long ops = hs_option_int(job, "--ops", 10000), warm = hs_option_int(job, "--warm", WARM);
    long warm_at = ops / 2 < warm ? ops / 2 : warm;
    struct fx_plan plans[PLANS];

    if (!hs_open(job))
        return;
    for (int id = 0; id < PLANS; id++)
        if (!fx_declare(job, id, sizes[id], DEPTH))
            return;
    for (int id = 0; id < PLANS && job->role == STEPAF_ATTENTION; id++)
        if (!fx_plan_make(job, id, sizes[id], DEPTH, FX_BOTH, &plans[id]))
            return;
    if (job->role == STEPAF_FFN && !fx_serve_open(job, sizes[PLANS - 1]))
        return;
    if (!HS_OK(stepaf_commit(job->ctx)))
        return;
    hs_step("exchange");
    if (job->role == STEPAF_FFN)
        serve(job, ops, warm_at);
    else
        attend(job, plans, ops, warm_at);
    hs_sync(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "soak", .options = "--ops --warm", .limit_s = 3600, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
