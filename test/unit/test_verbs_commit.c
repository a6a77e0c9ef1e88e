/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA in a commit: where one end of a link cannot be made, the other one learns why, and soon. */
#include <errno.h>
#include <stdlib.h>

#include <stepaf/stepaf.h>

#include "base/time.h"
#include "ranks.h"
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
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DIRECTION | STEPAF_KEY_MAX_BYTES,
                               .direction = STEPAF_PUSH,
                               .max_bytes = 64};
    stepaf_boot_t lent = *boot;

    lent.close = keep_open;
    setenv("STEPAF_TRANSPORTS", transports, 1);
    setenv("STEPAF_COMMIT_TIMEOUT_US", "20000000", 1);
    verbs_device_reset();
    stepaf_status_t status = stepaf_init(&lent, &params, ctx_p);
    return status ? status : stepaf_key_declare(*ctx_p, 1, &key);
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
    RANK_CHECK(boot, strstr(text, "finding the way to the peer"));
    RANK_CHECK(boot, (strstr(text, "world rank 2: ") == text) == (boot->rank != FAILS));
    stepaf_finalize(ctx);
    return 0;
}

static void all_learn_why_one_cannot_connect(void)
{
    ranks_expect_processes(RANKS, learn_why, NULL);
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
        {"what fails in a commit says so", what_fails_in_a_commit_says_so},
        CU_TEST_INFO_NULL,
    };
    return unit_run("verbs commit", tests);
}
