/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric: in the first commit it is seen whether anything gets through, both ways. Where nothing
 * does, the link is no lost peer, but takes another transport, and the status says why. */
#include "ofi_fabric.h"
#include "unit.h"

static struct side a, b;
static char reason[STEPAF_REASON_MAX];

static void begin(void)
{
    ofi_fabric_reset(11);
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    a.env.ofi_peer_timeout_us = b.env.ofi_peer_timeout_us = 600000000;
    fabric_join(&a, 0, &b, 0);
    reason[0] = '\0';
}

static void end(void)
{
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
}

static stepaf_status_t prove(const struct side *side, bool all_have_connected)
{
    uint32_t peer = 99;
    stepaf_status_t status =
        stepaf_ofi_ops.prove_links(side->transport, all_have_connected, &peer, reason);

    if (status == STEPAF_ERR_NO_TRANSPORT)
        CU_ASSERT_EQUAL(peer, 0);
    return status;
}

/* The peer goes on as well. */
static stepaf_status_t prove_long(const struct side *side, const struct side *peer)
{
    stepaf_status_t status = STEPAF_INPROGRESS;
    char ignored[STEPAF_REASON_MAX];
    uint32_t whose;

    for (int i = 0; i < 100000000 && status == STEPAF_INPROGRESS; i++) {
        status = prove(side, true);
        if (peer)
            (void)stepaf_ofi_ops.prove_links(peer->transport, true, &whose, ignored);
    }
    return status;
}

static void what_gets_through_is_seen(void)
{
    begin();
    CU_ASSERT_EQUAL(prove(&a, false), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, 0); /* the peer may not know this rank yet */
    for (int i = 0; i < 1000; i++)
        CU_ASSERT_EQUAL(prove(&a, true), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, 1);
    CU_ASSERT_EQUAL(prove_long(&a, &b), STEPAF_OK);
    CU_ASSERT_EQUAL(prove_long(&b, &a), STEPAF_OK);
    CU_ASSERT_EQUAL(prove(&a, false), STEPAF_OK);
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, 2);
    end();
}

/* Where the provider connects, only the attention side does: connections do not cross. */
static void one_side_connects(void)
{
    ofi_fabric_reset(12);
    ofi_fabric.addr_format = FI_SOCKADDR_IN;
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    a.env.ofi_peer_timeout_us = b.env.ofi_peer_timeout_us = 600000000;
    fabric_join(&a, 0, &b, 0);
    for (int i = 0; i < 1000; i++)
        CU_ASSERT_EQUAL(prove(&b, true), STEPAF_INPROGRESS);
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, 0);
    b.env.ofi_peer_timeout_us = 0;
    CU_ASSERT_EQUAL(prove(&b, true), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(reason, "it has not written");
    b.env.ofi_peer_timeout_us = 600000000;
    CU_ASSERT_EQUAL(prove_long(&a, &b), STEPAF_OK);
    CU_ASSERT_EQUAL(prove_long(&b, &a), STEPAF_OK);
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, 2);
    end();
}

static void where_nothing_does_another_transport_is_taken(void)
{
    begin();
    ofi_fabric.mute = ~0u;
    CU_ASSERT_EQUAL(prove(&a, true), STEPAF_INPROGRESS);
    a.env.ofi_peer_timeout_us = 20000;
    CU_ASSERT_EQUAL(prove_long(&a, &b), STEPAF_ERR_NO_TRANSPORT);
    UNIT_STRING(reason, "efa: no data gets through: it has not written (check that the network "
                        "permits it)");
    stepaf_ofi_ops.disconnect(a.links[0]);
    ofi_fabric.mute = 0; /* what comes late is of no interest */
    for (int i = 0; i < 1000; i++)
        (void)side_progress(&a);
    CU_ASSERT_EQUAL(prove(&a, true), STEPAF_OK);
    end();
}

/* Each end hears only what comes to it. */
static void one_way_is_not_enough(void)
{
    begin();
    a.env.ofi_peer_timeout_us = b.env.ofi_peer_timeout_us = 20000;
    ofi_fabric.mute = 1u << ofi_fabric_number(&a);
    CU_ASSERT_EQUAL(prove_long(&b, &a), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(reason, "it has not written");
    CU_ASSERT_EQUAL(prove_long(&a, NULL), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(reason, "it accepts no data");
    end();
}

/* A provider says that 64 bits go with a write, and half of them do. */
static void all_bits_are_to_arrive(void)
{
    ofi_fabric_reset(12);
    ofi_fabric.cq_data_size = 8;
    ofi_fabric.cuts_data = true;
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    a.env.ofi_peer_timeout_us = b.env.ofi_peer_timeout_us = 20000;
    fabric_join(&a, 0, &b, 0);
    CU_ASSERT_EQUAL(prove_long(&a, &b), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(reason, "it has not written");
    CU_ASSERT(a.up.dropped_malformed > 0);
    end();
}

static void who_is_not_connected_is_named_so(void)
{
    begin();
    a.env.ofi_peer_timeout_us = 20000;
    ofi_fabric.refuse_write = FI_EAGAIN;
    CU_ASSERT_EQUAL(prove_long(&a, &b), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(reason, "the library has not connected to it");
    end();
}

/* A provider that gives up says so, long before. */
static void what_the_provider_gives_up_is_no_lost_peer(void)
{
    begin();
    ofi_fabric.dead = 1u << ofi_fabric_number(&b);
    CU_ASSERT_EQUAL(prove_long(&a, &b), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(reason, "efa: no data gets through: the connection was reset");
    CU_ASSERT_EQUAL(prove(&a, true), STEPAF_ERR_NO_TRANSPORT);
    end();
    begin();
    ofi_fabric.refuse_write = FI_ECONNRESET;
    CU_ASSERT_EQUAL(prove_long(&a, &b), STEPAF_ERR_NO_TRANSPORT);
    UNIT_STRING(reason, "efa: no data gets through: the connection was reset (check that the "
                        "network permits it)");
    end();
}

/* The network has no part in that. */
static void what_the_library_rejects_is_said_alone(void)
{
    static const int errors[] = {FI_ENOSYS, FI_EINVAL, FI_EOPNOTSUPP, FI_EBADFLAGS};

    for (int i = 0; i < 4; i++) {
        begin();
        ofi_fabric.refuse_write = errors[i];
        CU_ASSERT_EQUAL(prove_long(&a, &b), STEPAF_ERR_NO_TRANSPORT);
        UNIT_CONTAINS(reason, "efa: no data gets through: ");
        CU_ASSERT_PTR_NULL(strstr(reason, "network"));
        end();
    }
}

static void to_finish_is_to_wait_for_it(void)
{
    uint32_t peer;

    begin();
    CU_ASSERT_EQUAL(stepaf_ofi_ops.finish_connects(a.transport, 0, 1, &peer, reason), STEPAF_OK);
    CU_ASSERT_EQUAL(ofi_fabric.n_writes, 0);
    CU_ASSERT_EQUAL(prove_long(&a, &b), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_ofi_ops.finish_connects(a.transport, 0, 1, &peer, reason), STEPAF_OK);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what gets through is seen", what_gets_through_is_seen},
        {"where nothing does another transport is taken",
         where_nothing_does_another_transport_is_taken},
        {"one way is not enough", one_way_is_not_enough},
        {"one side connects", one_side_connects},
        {"all bits are to arrive", all_bits_are_to_arrive},
        {"who is not connected is named so", who_is_not_connected_is_named_so},
        {"what the provider gives up is no lost peer", what_the_provider_gives_up_is_no_lost_peer},
        {"what the library rejects is said alone", what_the_library_rejects_is_said_alone},
        {"to finish is to wait for it", to_finish_is_to_wait_for_it},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
