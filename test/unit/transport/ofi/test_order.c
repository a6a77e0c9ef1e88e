/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric, over a fabric that knows no order: writes land in parts, completions come as they
 * like, writes are refused for a while. FABRIC_OPS is how many operations each way. */
#include <stdlib.h>

#include "ofi_fabric.h"
#include "unit.h"

enum { OPS = 4000, WIDE = 8 };

static void end(void)
{
    fabric_order_end(NULL);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ofi_fabric.n_foreign, 0);
    CU_ASSERT(ofi_fabric.more_run < STEPAF_OFI_MORE_MAX);
}

static void nothing_depends_on_order(void)
{
    ofi_fabric_reset(1);
    fabric_order_begin();
    fabric_order_exchange(fabric_order_ops(OPS));
    CU_ASSERT(ofi_fabric.n_overtaken > 0);
    CU_ASSERT(ofi_fabric.more_run > 2);
    CU_ASSERT_EQUAL(fabric_sides[0].n_by_imm, 0);
    end();
}

static void nor_where_data_say_messages(void)
{
    ofi_fabric_reset(7);
    ofi_fabric.cq_data_size = WIDE;
    fabric_order_begin();
    fabric_order_exchange(fabric_order_ops(OPS));
    CU_ASSERT(ofi_fabric.n_overtaken > 0);
    for (int s = 0; s < FABRIC_SIDES; s++)
        CU_ASSERT(fabric_sides[s].n_by_imm > fabric_order_ops(OPS) / 4);
    end();
}

static void numbers_wrap(void)
{
    ofi_fabric_reset(2);
    ofi_fabric.cq_data_size = WIDE;
    fabric_order_begin();
    for (int s = 0; s < FABRIC_SIDES; s++)
        for (uint32_t p = 0; p < ofi_of(&fabric_sides[s])->shared.n_peers; p++) {
            struct stepaf_ofi_link *link = ofi_link(&fabric_sides[s], p);
            link->shared.sent = link->shared.credit = link->shared.taken = link->shared.told =
                UINT32_MAX - 100;
        }
    fabric_order_exchange(fabric_order_ops(OPS) / 4);
    end();
}

static void writes_are_refused_for_a_while(void)
{
    ofi_fabric_reset(3);
    ofi_fabric.cq_data_size = WIDE;
    fabric_order_begin();
    ofi_fabric.refuse_one_in = 3;
    fabric_order_exchange(fabric_order_ops(OPS) / 4);
    CU_ASSERT(ofi_fabric.n_refused > 100);
    end();
}

static void few_writes_are_taken_at_a_time(void)
{
    ofi_fabric_reset(4);
    ofi_fabric.cq_data_size = WIDE;
    fabric_order_begin();
    ofi_fabric.depth = 2 * STEPAF_OFI_MORE_MAX;
    fabric_order_exchange(fabric_order_ops(OPS) / 4);
    CU_ASSERT(ofi_fabric.n_refused > 100);
    end();
}

/* More pieces than writes can be under way. */
static void tensors_are_cut(void)
{
    ofi_fabric_reset(5);
    ofi_fabric.cq_data_size = WIDE;
    fabric_order_begin();
    for (int s = 0; s < FABRIC_SIDES; s++)
        ofi_of(&fabric_sides[s])->piece_max = 16;
    fabric_order_exchange(fabric_order_ops(OPS) / 20);
    CU_ASSERT(ofi_fabric.n_writes > 100 * (fabric_order_ops(OPS) / 20));
    end();
}

/* Provider cxi: each write is a call without flags, so each rings. */
static void writes_may_be_writedata(void)
{
    static const char *const names[] = {"cxi", NULL};
    static const char *const settings[] = {"STEPAF_TRANSPORTS", "ofi", "STEPAF_OFI_PROVIDER", "cxi",
                                           NULL};

    ofi_fabric_reset(8);
    ofi_fabric.names = names;
    ofi_fabric.cq_data_size = WIDE;
    ofi_fabric.mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    ofi_fabric.only_writedata = true;
    side_settings = settings;
    (void)setenv("FI_CXI_ENABLE_WRITEDATA", "1", 1);
    fabric_order_begin();
    fabric_order_exchange(fabric_order_ops(OPS) / 4);
    (void)unsetenv("FI_CXI_ENABLE_WRITEDATA");
    side_settings = NULL;
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, ofi_fabric.n_rung);
    end();
}

/* Memory as providers want it. */
static void memory_is_registered_in_each_way(void)
{
    static const uint64_t modes[] = {0, FI_MR_ENDPOINT, FI_MR_ENDPOINT | FI_MR_PROV_KEY,
                                     FI_MR_VIRT_ADDR};

    for (int m = 0; m < 4; m++) {
        ofi_fabric_reset(6);
        ofi_fabric.mr_mode = modes[m];
        ofi_fabric.taken_keys = modes[m] & FI_MR_PROV_KEY ? 0 : 3;
        fabric_order_begin();
        fabric_order_exchange(fabric_order_ops(OPS) / 20);
        end();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nothing depends on order", nothing_depends_on_order},
        {"nor where data say messages", nor_where_data_say_messages},
        {"numbers wrap", numbers_wrap},
        {"writes are refused for a while", writes_are_refused_for_a_while},
        {"few writes are taken at a time", few_writes_are_taken_at_a_time},
        {"tensors are cut", tensors_are_cut},
        {"writes may be writedata", writes_may_be_writedata},
        {"memory is registered in each way", memory_is_registered_in_each_way},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
