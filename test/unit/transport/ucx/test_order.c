/* SPDX-License-Identifier: Apache-2.0 */
/* UCX, over one that knows no order: see ucx_fabric.h. FABRIC_OPS is how many operations each
 * way. */
#include "ucx_fabric.h"
#include "unit.h"

enum { OPS = 4000 };

static void end(uint64_t *n_dropped_p)
{
    fabric_order_end(n_dropped_p);
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_foreign, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
}

static void nothing_depends_on_order(void)
{
    ucx_fabric_reset(1);
    fabric_order_begin();
    fabric_order_exchange(fabric_order_ops(OPS));
    CU_ASSERT(ucx_fabric.n_overtaken > 10);
    CU_ASSERT(ucx_fabric.n_told > 10);
    end(NULL);
}

static void all_may_be_fetched(void)
{
    ucx_fabric_reset(2);
    ucx_fabric.told_in = 1;
    fabric_order_begin();
    fabric_order_exchange(fabric_order_ops(OPS) / 2);
    CU_ASSERT(ucx_fabric.n_overtaken > 10);
    CU_ASSERT(ucx_fabric.n_told > 0);
    end(NULL);
}

static void nothing_is_done_at_once(void)
{
    ucx_fabric_reset(3);
    ucx_fabric.at_once_in = 0;
    fabric_order_begin();
    fabric_order_exchange(fabric_order_ops(OPS) / 4);
    end(NULL);
}

static void numbers_wrap(void)
{
    ucx_fabric_reset(4);
    fabric_order_begin();
    for (int s = 0; s < FABRIC_SIDES; s++)
        for (uint32_t p = 0; p < fabric_of(&fabric_sides[s])->n_peers; p++) {
            struct stepaf_fabric_link *link = fabric_link(&fabric_sides[s], p);
            link->sent = link->credit = link->taken = link->told = UINT32_MAX - 100;
        }
    fabric_order_exchange(fabric_order_ops(OPS) / 4);
    end(NULL);
}

static void few_operations_are_free(void)
{
    ucx_fabric_reset(5);
    fabric_order_begin();
    for (int s = 0; s < FABRIC_SIDES; s++) { /* all but three */
        ucx_of(&fabric_sides[s])->free_op = &ucx_of(&fabric_sides[s])->ops[2];
        ucx_of(&fabric_sides[s])->free_reserve = NULL;
    }
    fabric_order_exchange(fabric_order_ops(OPS) / 4);
    end(NULL);
}

static void what_comes_twice_is_dropped(void)
{
    uint64_t n_dropped;

    ucx_fabric_reset(6);
    ucx_fabric.twice_in = 2;
    fabric_order_begin();
    fabric_order_exchange(fabric_order_ops(OPS) / 4);
    end(&n_dropped);
    CU_ASSERT(ucx_fabric.n_twice[STEPAF_UCX_MESSAGE] > 10);
    CU_ASSERT(ucx_fabric.n_twice[STEPAF_UCX_QUICK] > 10);
    CU_ASSERT_EQUAL(n_dropped,
                    ucx_fabric.n_twice[STEPAF_UCX_MESSAGE] + ucx_fabric.n_twice[STEPAF_UCX_QUICK]);
}

/* Then messages carry few bytes as copies, or none. */
static void headers_may_be_short(void)
{
    static const size_t header_max[] = {700, 217, STEPAF_UCX_HEAD_USUAL};
    static const uint32_t stages[] = {484, 1, 0};

    for (int i = 0; i < 3; i++) {
        ucx_fabric_reset(7);
        ucx_fabric.header_max = header_max[i];
        fabric_order_begin();
        CU_ASSERT_EQUAL(ucx_of(&fabric_sides[0])->stage, stages[i]);
        fabric_order_exchange(fabric_order_ops(OPS) / 4);
        end(NULL);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nothing depends on order", nothing_depends_on_order},
        {"all may be fetched", all_may_be_fetched},
        {"nothing is done at once", nothing_is_done_at_once},
        {"numbers wrap", numbers_wrap},
        {"few operations are free", few_operations_are_free},
        {"headers may be short", headers_may_be_short},
        {"what comes twice is dropped", what_comes_twice_is_dropped},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
