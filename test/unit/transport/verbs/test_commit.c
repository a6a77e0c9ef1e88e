/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA in a commit: where one end of a link cannot be made, the other one learns why, and soon. */
#include <errno.h>
#include <stdlib.h>

#include <stepaf/stepaf.h>

#include "base/time.h"
#include "ranks.h"
#include "starve.h"
#include "unit.h"
#include "verbs_device.h"

enum { RANKS = 4, FAILS = 2, COMMIT_S = 20, SOON_S = 10 };

/* The ranks' own, not the context's to close. */
static void keep_open(void *self)
{
    (void)self;
}

static stepaf_status_t begin(const stepaf_boot_t *boot, const char *transports,
                             stepaf_context_h *ctx_p)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = boot->rank % 2 ? STEPAF_FFN : STEPAF_ATTENTION};
    stepaf_boot_t lent = *boot;

    lent.close = keep_open;
    setenv("STEPAF_TRANSPORTS", transports, 1);
    setenv("STEPAF_COMMIT_TIMEOUT_US", "20000000", 0);
    verbs_device_reset();
    stepaf_status_t status = stepaf_init(&lent, &params, ctx_p);
    return status ? status : stepaf_key_declare(*ctx_p, 1, STEPAF_PUSH, 64, NULL);
}

static int learn_why(const stepaf_boot_t *boot, void *arg)
{
    stepaf_context_h ctx;

    (void)arg;
    RANK_CHECK(boot, begin(boot, "verbs", &ctx) == STEPAF_OK);
    verbs_device.refuse_rtr = boot->rank == FAILS ? EHOSTUNREACH : 0;
    int64_t began_ns = stepaf_monotonic_ns();
    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_ERR_NO_TRANSPORT);
    RANK_CHECK(boot, stepaf_monotonic_ns() - began_ns < SOON_S * 1000000000ll);
    const char *text = stepaf_last_error()->text;
    RANK_CHECK(boot, strstr(text, "finding the path to the peer"));
    RANK_CHECK(boot, (strstr(text, "world rank 2: ") == text) == (boot->rank != FAILS));
    stepaf_finalize(ctx);
    return 0;
}

static void all_learn_why_one_cannot_connect(void)
{
    ranks_expect_processes(RANKS, learn_why, NULL);
}

/* One operation from rank 0 to rank 1. */
static int push(const stepaf_boot_t *boot, stepaf_context_h ctx, stepaf_plan_h plan)
{
    stepaf_request_h request;
    stepaf_tensor_info_t in = {.size = sizeof(in)};
    stepaf_batch_h batch;
    int n;

    if (boot->rank == 0) {
        RANK_CHECK(boot, stepaf_start(plan, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, SOON_S * 1000000ll) == STEPAF_OK);
        return 0;
    }
    RANK_CHECK(boot, stepaf_recv(ctx, STEPAF_FROM_ANY, 0, SOON_S * 1000000ll, &batch, 1, &n) ==
                         STEPAF_OK);
    RANK_CHECK(boot, stepaf_batch_tensor(batch, 0, &in) == STEPAF_OK);
    RANK_CHECK(boot, in.bytes == 64 && ((uint8_t *)in.data)[63] == 0x5a);
    RANK_CHECK(boot, stepaf_release(batch) == STEPAF_OK);
    return 0;
}

/* @a arg: the rank whose queue pair cannot be made ready, as the other's can. */
static int go_another_way(const stepaf_boot_t *boot, void *arg)
{
    stepaf_plan_h plan = NULL;
    stepaf_link_info_t link = {.size = sizeof(link)};
    stepaf_context_h ctx;
    void *memory;

    RANK_CHECK(boot, begin(boot, "verbs,tcp", &ctx) == STEPAF_OK);
    verbs_device.refuse_rtr = boot->rank == *(const int *)arg ? EHOSTUNREACH : 0;
    RANK_CHECK(boot, stepaf_alloc(ctx, 64, STEPAF_MEM_HOST, &memory) == STEPAF_OK);
    memset(memory, 0x5a, 64);
    stepaf_tensor_t tensor = {1, memory, 64};
    if (boot->rank == 0)
        RANK_CHECK(boot, stepaf_plan_create(ctx, &tensor, 1, NULL, 0, 0, &plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_OK);
    RANK_CHECK(boot, push(boot, ctx, plan) == 0);
    RANK_CHECK(boot, stepaf_link_query(ctx, 0, &link) == STEPAF_OK);
    RANK_CHECK(boot, !strncmp(link.transport, "tcp", 3));
    stepaf_finalize(ctx);
    return 0;
}

/* The other end has a link that cannot be used, and does not know it. */
static void both_ends_go_another_way_where_one_cannot_connect(void)
{
    for (int fails = 0; fails < 2; fails++)
        ranks_expect_processes(2, go_another_way, &fails);
}

/* What a rank says of its links, after what it has said at init and in the commit. */
enum { MEETING = 3, LIAR = 1 };
enum lie { HALF, NO_SUCH_TRANSPORT, LIES };
static stepaf_boot_t honest;
static enum lie lie;
static int n_exchanges;

static stepaf_status_t tell_a_lie(void *self, const void *mine, size_t bytes, void **all_p,
                                  size_t *offsets_p, int64_t timeout_us)
{
    uint8_t said[64];

    if (++n_exchanges != MEETING || honest.rank != LIAR || bytes > sizeof(said))
        return honest.allgather(self, mine, bytes, all_p, offsets_p, timeout_us);
    memcpy(said, mine, bytes);
    said[bytes - 1] = 200; /* the transport that it has taken for its last peer */
    return honest.allgather(self, said, lie == HALF ? bytes / 2 : bytes, all_p, offsets_p,
                            timeout_us);
}

static int meet_a_liar(const stepaf_boot_t *boot, void *arg)
{
    stepaf_boot_t lies = *boot;
    stepaf_context_h ctx;

    lie = *(const enum lie *)arg;
    honest = *boot;
    n_exchanges = 0;
    lies.allgather = tell_a_lie;
    RANK_CHECK(boot, begin(&lies, "verbs,tcp", &ctx) == STEPAF_OK);
    verbs_device.refuse_rtr = EHOSTUNREACH;
    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_ERR_PROTOCOL);
    if (boot->rank != LIAR)
        RANK_CHECK(boot, strstr(stepaf_last_error()->text,
                                "world rank 1: its report on its links is malformed"));
    stepaf_finalize(ctx);
    return 0;
}

static void what_is_said_of_links_is_not_trusted(void)
{
    for (enum lie i = 0; i < LIES; i++)
        ranks_expect_processes(2, meet_a_liar, &i);
}

/* Which allocation of a rank fails once all have met; 0: none. */
static uint64_t failing;

static stepaf_status_t meet_and_starve(void *self, const void *mine, size_t bytes, void **all_p,
                                       size_t *offsets_p, int64_t timeout_us)
{
    stepaf_status_t status = honest.allgather(self, mine, bytes, all_p, offsets_p, timeout_us);

    if (++n_exchanges == MEETING)
        starve_begin(failing, false);
    return status;
}

/* Rank 0 has to follow rank 1, and has no memory for it. */
static int fail_to_follow(const stepaf_boot_t *boot, void *arg)
{
    stepaf_boot_t starves = *boot;
    stepaf_context_h ctx;

    failing = boot->rank == 0 ? *(const uint64_t *)arg : 0;
    honest = *boot;
    n_exchanges = 0;
    starves.allgather = meet_and_starve;
    setenv("STEPAF_COMMIT_TIMEOUT_US", "2000000", 1);
    RANK_CHECK(boot, begin(&starves, "verbs,tcp", &ctx) == STEPAF_OK);
    verbs_device.refuse_rtr = boot->rank == 0 ? 0 : EHOSTUNREACH;
    stepaf_status_t status = stepaf_commit(ctx);
    starve_end();
    RANK_CHECK(boot, boot->rank == 0 ? status == STEPAF_ERR_NO_MEMORY : status != STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_ERR_STATE);
    stepaf_finalize(ctx);
    return 0;
}

static void who_cannot_follow_says_so(void)
{
    for (uint64_t nth = 1; nth <= 4; nth++) /* two for the link, two for the peer's memory */
        ranks_expect_processes(2, fail_to_follow, &nth);
}

static int say_when(const stepaf_boot_t *boot, void *arg)
{
    stepaf_context_h ctx;

    (void)arg;
    RANK_CHECK(boot, begin(boot, "verbs", &ctx) == STEPAF_OK);
    verbs_device.refuse_mr = 1;
    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_ERR_NO_TRANSPORT);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "cannot register"));
    RANK_CHECK(boot, stepaf_last_error()->phase == STEPAF_PHASE_COMMIT);
    stepaf_finalize(ctx);
    return 0;
}

static void what_fails_in_a_commit_says_so(void)
{
    ranks_expect_processes(2, say_when, NULL);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"all learn why one cannot connect", all_learn_why_one_cannot_connect},
        {"both ends go another way where one cannot connect",
         both_ends_go_another_way_where_one_cannot_connect},
        {"who cannot follow says so", who_cannot_follow_says_so},
        {"what is said of links is not trusted", what_is_said_of_links_is_not_trusted},
        {"what fails in a commit says so", what_fails_in_a_commit_says_so},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
