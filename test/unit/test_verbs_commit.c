/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA in a commit: where one end of a link cannot be made, the other one learns why, and soon. */
#include <errno.h>
#include <stdlib.h>

#include <stepaf/stepaf.h>

#include "base/time.h"
#include "ranks.h"
#include "unit.h"
#include "verbs_device.h"

enum { RANKS = 4, FAILS = 2 };

/* The ranks' own, not the context's to close. */
static void keep_open(void *self)
{
    (void)self;
}

static int commit_one(const stepaf_boot_t *boot, void *arg)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = boot->rank % 2 ? STEPAF_FFN : STEPAF_ATTENTION};
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DIRECTION | STEPAF_KEY_MAX_BYTES,
                               .direction = STEPAF_PUSH,
                               .max_bytes = 64};
    stepaf_boot_t lent = *boot;
    stepaf_context_h ctx;

    (void)arg;
    lent.close = keep_open;
    setenv("STEPAF_TRANSPORTS", "verbs", 1);
    setenv("STEPAF_COMMIT_TIMEOUT_US", "20000000", 1);
    verbs_device_reset();
    verbs_device.refuse_rtr = boot->rank == FAILS ? EHOSTUNREACH : 0;
    RANK_CHECK(boot, stepaf_init(&lent, &params, &ctx) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_key_declare(ctx, 1, &key) == STEPAF_OK);
    int64_t began_ns = stepaf_monotonic_ns();
    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_ERR_NO_TRANSPORT);
    RANK_CHECK(boot, stepaf_monotonic_ns() - began_ns < 10000000000);
    const char *text = stepaf_last_error()->text;
    RANK_CHECK(boot, strstr(text, "finding the way to the peer"));
    RANK_CHECK(boot, (strstr(text, "world rank 2: ") == text) == (boot->rank != FAILS));
    stepaf_finalize(ctx);
    return 0;
}

static void all_learn_why_one_cannot_connect(void)
{
    ranks_expect_processes(RANKS, commit_one, NULL);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"all learn why one cannot connect", all_learn_why_one_cannot_connect},
        CU_TEST_INFO_NULL,
    };
    return unit_run("verbs commit", tests);
}
