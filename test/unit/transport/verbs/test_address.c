/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA: by which entry of its GID table a port is reached, and what that is called. */
#include <errno.h>
#include <string.h>

#include "unit.h"
#include "verbs_side.h"

enum { GIDS = 300 };

static struct vside a;
static struct ibv_gid_entry table[GIDS];

/* Set an entry to an address of two halves; the upper one 0: of IPv4, the last four bytes. */
static void put(unsigned index, uint32_t type, uint64_t upper, uint64_t lower)
{
    table[index] = (struct ibv_gid_entry){.gid_type = type};
    if (!upper)
        lower = (uint32_t)lower | 0xffffull << 32;
    for (int i = 0; i < 8; i++) {
        table[index].gid.raw[i] = (uint8_t)(upper >> (56 - 8 * i));
        table[index].gid.raw[8 + i] = (uint8_t)(lower >> (56 - 8 * i));
    }
}

static stepaf_status_t try_table(int n, const char *settings)
{
    verbs_device_reset();
    verbs_device.gids = table;
    verbs_device.n_gids = n;
    vside_settings = settings;
    return vside_try(&a, 1);
}

/* The entry that is taken of the first @a n. */
static uint32_t chosen(int n)
{
    CU_ASSERT_EQUAL_FATAL(try_table(n, ""), STEPAF_OK);
    uint32_t index = ((struct stepaf_verbs *)a.transport)->rails[0].port.gid_index;
    vside_close(&a);
    return index;
}

/* In the order in which kernels fill a table; what routers pass on goes before what they do not. */
static void the_address_that_goes_farthest_is_taken(void)
{
    memset(table, 0, sizeof(table));
    put(0, IBV_GID_TYPE_ROCE_V1, 0xfe80000000000000, 0x021122fffe334455);
    CU_ASSERT_EQUAL(chosen(1), 0);
    put(1, IBV_GID_TYPE_ROCE_V1, 0xfd00000000000001, 1);
    CU_ASSERT_EQUAL(chosen(2), 1);
    put(2, IBV_GID_TYPE_ROCE_V1, 0, 0x0a000001);
    CU_ASSERT_EQUAL(chosen(3), 2);
    put(3, IBV_GID_TYPE_ROCE_V2, 0xfe80000000000000, 0x021122fffe334455);
    CU_ASSERT_EQUAL(chosen(4), 3);
    put(4, IBV_GID_TYPE_ROCE_V2, 0xfd00000000000001, 1);
    CU_ASSERT_EQUAL(chosen(5), 4);
    put(5, IBV_GID_TYPE_ROCE_V2, 0, 0x0a000001);
    CU_ASSERT_EQUAL(chosen(6), 5);
    CU_ASSERT_EQUAL(chosen(GIDS), 5);
}

/* Entries of interfaces that are gone, or in another network namespace: the best one that works. */
static void an_entry_that_cannot_send_is_left_alone(void)
{
    memset(table, 0, sizeof(table));
    put(0, IBV_GID_TYPE_ROCE_V1, 0, 0x0a000001);
    put(1, IBV_GID_TYPE_ROCE_V2, 0xfd00000000000001, 1);
    put(2, IBV_GID_TYPE_ROCE_V2, 0, 0x0a000001);
    put(3, IBV_GID_TYPE_ROCE_V2, 0, 0x0a000002);
    for (unsigned tried = 0; tried < 4; tried++) {
        static const uint64_t refused[] = {0, 1 << 2, 3 << 2, 7 << 1};
        static const uint32_t left[] = {2, 3, 1, 0};
        verbs_device_reset();
        verbs_device.gids = table;
        verbs_device.n_gids = 4;
        verbs_device.refuse_gids = refused[tried];
        verbs_device.refuse_gids_by = ENODEV;
        vside_settings = "";
        vside_open(&a, 1);
        CU_ASSERT_EQUAL(((struct stepaf_verbs *)a.transport)->rails[0].port.gid_index, left[tried]);
        vside_close(&a);
    }
    verbs_device.refuse_gids = 15;
    vside_settings = "VERBS_GID_INDEX=2";
    CU_ASSERT_EQUAL(vside_try(&a, 1), STEPAF_ERR_SETTING);
    UNIT_CONTAINS(stepaf_last_error()->text, "fake0:1 cannot send with it: No such device");
    vside_settings = "VERBS_CONNECT=oob";
    CU_ASSERT_EQUAL(vside_try(&a, 1), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "cannot send with any of its GIDs: No such device");
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
    verbs_device.refuse_gids_by = EOPNOTSUPP; /* a device that has no address handles */
    vside_open(&a, 1);
    CU_ASSERT_EQUAL(((struct stepaf_verbs *)a.transport)->rails[0].port.gid_index, 2);
    vside_close(&a);
}

/* A queue pair names an entry by eight bits, whatever the table's length. */
static void entries_beyond_a_queue_pairs_reach_are_left_alone(void)
{
    memset(table, 0, sizeof(table));
    put(3, IBV_GID_TYPE_ROCE_V1, 0, 0x0a000001);
    put(258, IBV_GID_TYPE_ROCE_V2, 0, 0x0a000001);
    CU_ASSERT_EQUAL(chosen(GIDS), 3);
    CU_ASSERT_EQUAL(try_table(GIDS, "VERBS_GID_INDEX=258"), STEPAF_ERR_SETTING);
    UNIT_CONTAINS(stepaf_last_error()->text, "has GIDs 0 to 255");
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* Made of a hardware address whose third byte is 0xff, its middle looks like that of IPv4. */
static void what_looks_like_ipv4_in_the_middle_is_ipv6(void)
{
    static struct vside b;

    memset(table, 0, sizeof(table));
    put(0, IBV_GID_TYPE_ROCE_V2, 0xfd00000000000001, 0x0211fffffe334455);
    CU_ASSERT_EQUAL_FATAL(try_table(1, ""), STEPAF_OK);
    vside_open(&b, 1);
    vside_join(&a, &b);
    UNIT_STRING(a.links[0]->address, "fd00::1:211:ffff:fe33:4455");
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* Why one end cannot connect to the other, whose only address is another one; "": it can. */
static const char *mismatch(const char *settings, const struct ibv_gid_entry *its)
{
    static struct vside b;

    CU_ASSERT_EQUAL_FATAL(try_table(1, settings), STEPAF_OK);
    verbs_device.gids = its;
    vside_open(&b, 1);
    const char *reason = vside_connect(&a, 0, &b, 0, NULL);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
    return reason ? reason : "";
}

/* Nothing would come, or no connection be found, and neither be known before the commit's end. */
static void addresses_that_do_not_go_together_are_refused(void)
{
    memset(table, 0, sizeof(table));
    put(0, IBV_GID_TYPE_ROCE_V2, 0, 0x0a000001);
    put(1, IBV_GID_TYPE_ROCE_V1, 0, 0x0a000002);
    put(2, IBV_GID_TYPE_ROCE_V2, 0xfd00000000000001, 2);
    put(3, IBV_GID_TYPE_ROCE_V2, 0, 0x0a000002);
    UNIT_CONTAINS(mismatch("", &table[1]), "rail 0 (fake0:1): one end is RoCE v1, the other v2");
    UNIT_CONTAINS(mismatch("", &table[2]), "one end has an address of IPv4, the other of IPv6");
    UNIT_CONTAINS(mismatch("VERBS_CONNECT=cm", &table[2]), "of IPv4, the other of IPv6");
    UNIT_STRING(mismatch("", &table[3]), "");
    UNIT_STRING(mismatch("VERBS_CONNECT=cm", &table[1]), "");
}

/* Ports of InfiniBand may share a LID, as those of virtual functions, and say so: what goes to
 * them, and comes from them, has a global header. */
static void a_port_that_asks_for_a_global_header_gets_one(void)
{
    static struct vside b;

    for (unsigned asks = 0; asks < 4; asks++) {
        verbs_device_reset();
        vside_settings = "";
        verbs_device.is_infiniband = true;
        verbs_device.port_flags = asks & 1 ? IBV_QPF_GRH_REQUIRED : 0;
        vside_open(&a, 1);
        verbs_device.port_flags = asks & 2 ? IBV_QPF_GRH_REQUIRED : 0;
        vside_open(&b, 1);
        vside_join(&a, &b);
        CU_ASSERT_EQUAL(verbs_device.n_global, asks ? 2 : 0);
        vside_close(&a);
        vside_close(&b);
        CU_ASSERT_EQUAL(verbs_device.n_open, 0);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the address that goes farthest is taken", the_address_that_goes_farthest_is_taken},
        {"an entry that cannot send is left alone", an_entry_that_cannot_send_is_left_alone},
        {"entries beyond a queue pair's reach are left alone",
         entries_beyond_a_queue_pairs_reach_are_left_alone},
        {"what looks like IPv4 in the middle is IPv6", what_looks_like_ipv4_in_the_middle_is_ipv6},
        {"addresses that do not go together are refused",
         addresses_that_do_not_go_together_are_refused},
        {"a port that asks for a global header gets one",
         a_port_that_asks_for_a_global_header_gets_one},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
