/* SPDX-License-Identifier: Apache-2.0 */
/* UCX: when it is used, and what is said of it; what cannot be opened leaves nothing open; no
 * allocation that fails leaves anything either; a link that is closed is left alone. */
#include <stdlib.h>

#include "ucx_fabric.h"
#include "unit.h"

static struct side a, b;

static void it_is_only_used_if_asked_for(void)
{
    fabric_ask_used_if_listed(&stepaf_ucx_ops);
}

static void it_is_described(void)
{
    char text[STEPAF_REASON_MAX] = "";

    ucx_fabric_reset(31);
    ucx_fabric.minor = 18;
    CU_ASSERT(stepaf_ucx_ops.probe(NULL, text));
    UNIT_STRING(text, "");
    fabric_open(&a, 1);
    side_ops->describe(a.transport, text);
    UNIT_STRING(text, "UCX 1.18.0, transports rc_verbs,ud_verbs,posix, devices mlx5_0:1,mlx5_0:10");
    fabric_open(&b, 1);
    fabric_join(&a, 0, &b, 0);
    UNIT_STRING(a.links[0]->name, "ucx");
    fabric_prove((struct side *[]){&a, &b}, 2);
    side_ops->shrink(a.transport);
    side_ops->describe(a.transport, text);
    UNIT_STRING(text, "UCX 1.18.0");
    UNIT_STRING(a.links[0]->name, "ucx;rc_verbs");
    UNIT_STRING(a.links[0]->address, "rc_verbs/mlx5_0:1,rc_verbs/mlx5_1:1");
    side_close(&a);
    side_close(&b);
}

/* What it says of lanes is words, which are not to be relied upon. */
static void strange_words_do_no_harm(void)
{
    static const char *const strange[] = {
        "",
        "lane[",
        "lane[0]",
        "lane[0]:\n",
        "lane[0]: 1:\nlane[1]: 2",
        "lane[0]: 1:tcp\n",
        "lane[0]: 1:a_transport_with_a_name_that_is_far_too_long_to_be_kept/device am\n"};
    static const char *const resources[] = {
        "",
        "resource ",
        "resource 1 -- ",
        "resource 1 -- /\nresource 2 -- a/\n",
        "resource 1 -- tcp",
        "resource 1 -- tcp/lo",
        "resource 1 -- a_transport_with_a_name_that_is_far_too_long_to_be_kept/its_device\n"};
    char text[STEPAF_REASON_MAX];

    for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
        ucx_fabric_reset(32);
        ucx_fabric.lanes = strange[i];
        ucx_fabric.resources = resources[i];
        fabric_open(&a, 1);
        fabric_open(&b, 1);
        side_ops->describe(a.transport, text);
        CU_ASSERT(!strncmp(text, "UCX 1.13.0", 10) && strlen(text) < STEPAF_REASON_MAX);
        fabric_join(&a, 0, &b, 0);
        fabric_prove((struct side *[]){&a, &b}, 2);
        CU_ASSERT(!strncmp(a.links[0]->name, "ucx", 3) &&
                  strlen(a.links[0]->name) < STEPAF_LINK_NAME);
        side_close(&a);
        side_close(&b);
    }
}

/* Each call that opens something fails in turn. */
static void what_cannot_be_opened_leaves_nothing(void)
{
    static const char *const asked[] = {"STEPAF_TRANSPORTS", "ucx", NULL};
    int n = 0;

    side_settings = asked;
    for (stepaf_status_t status = STEPAF_ERR_NO_TRANSPORT; status; n++) {
        ucx_fabric_reset(34);
        ucx_fabric.refuse_call = n + 1;
        status = side_try_open(&a, 2);
        if (!status)
            side_close(&a);
        else
            UNIT_STRING(stepaf_last_error()->text, "ucx: cannot open: an error");
        CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
        CU_ASSERT(!status || status == STEPAF_ERR_NO_TRANSPORT);
    }
    CU_ASSERT_EQUAL(n, 6);
    side_settings = NULL;
}

/* What it needs of UCX, and a device that has less takes away. */
static void what_does_not_fit_is_said(void)
{
    static const char *const asked[] = {"STEPAF_TRANSPORTS", "ucx", NULL};

    side_settings = asked;
    ucx_fabric_reset(38);
    ucx_fabric.header_max = STEPAF_UCX_HEAD_USUAL - 1;
    CU_ASSERT_EQUAL(side_try_open(&a, 2), STEPAF_ERR_NO_TRANSPORT);
    UNIT_STRING(stepaf_last_error()->text,
                "ucx: headers of active messages have at most 103 bytes, and need 104: leave out "
                "the device with the smallest MTU (UCX_NET_DEVICES)");
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    ucx_fabric_reset(38);
    ucx_fabric.address_bytes = STEPAF_UCX_ADDRESS + 1;
    CU_ASSERT_EQUAL(side_try_open(&a, 2), STEPAF_ERR_NO_TRANSPORT);
    UNIT_STRING(stepaf_last_error()->text, "ucx: the address has 4097 bytes, more than 4096: use "
                                           "fewer devices (UCX_NET_DEVICES)");
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    side_settings = NULL;
}

/* Why no data get through from a to b, whose sends end by this. */
static const char *refused_by(ucs_status_t status)
{
    static char reason[STEPAF_REASON_MAX];
    uint32_t peer;

    ucx_fabric_reset(39);
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    fabric_join(&a, 0, &b, 0);
    ucx_fabric.refuse = status;
    for (int i = 0; i < 100; i++)
        if (side_ops->prove_links(a.transport, true, &peer, reason) == STEPAF_ERR_NO_TRANSPORT)
            break;
    ucx_fabric.refuse = UCS_OK;
    side_close(&a);
    side_close(&b);
    return reason;
}

static void the_network_is_named_where_it_may_be_the_reason(void)
{
    UNIT_STRING(refused_by(UCS_ERR_CONNECTION_RESET),
                "UCX: no data gets through: the connection was reset (check that the network "
                "permits it)");
    UNIT_STRING(refused_by(UCS_ERR_UNSUPPORTED), "UCX: no data gets through: an error");
    UNIT_STRING(refused_by(UCS_ERR_NOT_IMPLEMENTED), "UCX: no data gets through: an error");
    UNIT_STRING(refused_by(UCS_ERR_INVALID_PARAM), "UCX: no data gets through: an error");
}

static void memory_that_cannot_be_registered_is_said(void)
{
    struct stepaf_mem mem = {.base = (uint8_t *)&b, .bytes = 64, .fd = -1};

    ucx_fabric_reset(35);
    fabric_open(&a, 1);
    ucx_fabric.refuse_call = 1;
    CU_ASSERT_EQUAL(side_ops->reg_mem(a.transport, &mem), STEPAF_ERR_TRANSPORT);
    UNIT_STRING(stepaf_last_error()->text, "ucx: cannot register 64 bytes: an error");
    side_ops->dereg_mem(a.transport, &mem);
    side_close(&a);
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
}

static void reset_for_starved(void)
{
    ucx_fabric_reset(36);
}

static void memory_may_run_out_anywhere(void)
{
    fabric_ask_starved("ucx", reset_for_starved, &ucx_fabric.n_open);
}

/* Its peer is to be told how much has been taken, for which there was no room. What is under way to
 * it ends when its endpoint is gone, by an error, and that has the link seen to. */
static void a_link_that_is_closed_is_not_sent_to(void)
{
    ucx_fabric_reset(37);
    ucx_fabric.at_once_in = 0;
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    fabric_join(&a, 0, &b, 0);
    fabric_prove((struct side *[]){&a, &b}, 2);
    fabric_take_in((struct side *[]){&a, &b}, 2);
    ucx_fabric.mute = 1u << ucx_fabric_number(&a);
    CU_ASSERT_EQUAL(side_say(&a, 0, 1), STEPAF_POST_SENT);
    struct stepaf_ucx_op *free_op = ucx_of(&a)->free_op;
    struct stepaf_ucx_op *free_reserve = ucx_of(&a)->free_reserve;
    ucx_of(&a)->free_op = ucx_of(&a)->free_reserve = NULL;
    for (uint32_t i = 0; i < STEPAF_FABRIC_RING / 2; i++)
        CU_ASSERT_EQUAL(side_say(&b, 0, i), STEPAF_POST_SENT);
    fabric_take_in((struct side *[]){&a, &b}, 2);
    ucx_of(&a)->free_op = free_op;
    ucx_of(&a)->free_reserve = free_reserve;
    const struct stepaf_fabric_link *link = fabric_link(&a, 0);
    CU_ASSERT_EQUAL(link->taken - link->told, STEPAF_FABRIC_RING / 2);
    CU_ASSERT_EQUAL(link->flight[0].pending, 1);
    unsigned before = ucx_fabric.n_messages;
    side_ops->disconnect(a.links[0]);
    fabric_take_in((struct side *[]){&a, &b}, 2);
    CU_ASSERT_EQUAL(link->flight[0].pending, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_messages, before);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
    CU_ASSERT(!a.n_lost && !b.n_messages);
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"it is only used if asked for", it_is_only_used_if_asked_for},
        {"it is described", it_is_described},
        {"strange words do no harm", strange_words_do_no_harm},
        {"what cannot be opened leaves nothing", what_cannot_be_opened_leaves_nothing},
        {"what does not fit is said", what_does_not_fit_is_said},
        {"the network is named where it may be the reason",
         the_network_is_named_where_it_may_be_the_reason},
        {"memory that cannot be registered is said", memory_that_cannot_be_registered_is_said},
        {"memory may run out anywhere", memory_may_run_out_anywhere},
        {"a link that is closed is not sent to", a_link_that_is_closed_is_not_sent_to},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
