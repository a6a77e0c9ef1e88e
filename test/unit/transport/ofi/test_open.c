/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric: which provider is chosen, and why the others are not; what cannot be opened leaves
 * nothing open; no allocation that fails leaves anything either. */
#include <stdlib.h>

#include "ofi_fabric.h"
#include "unit.h"

static struct side a;
static char refused[STEPAF_REASON_MAX], reason[STEPAF_REASON_MAX];

/* Its name; "": none, and the reason says why. */
static const char *choose(const char *const *names, const char *name)
{
    static char taken[STEPAF_OFI_PROVIDER];
    struct stepaf_env env = {.ofi_provider = (char *)(uintptr_t)name, .ofi_domains = (char *)""};
    struct fi_info *infos[STEPAF_OFI_RAILS];

    ofi_fabric.names = names;
    reason[0] = '\0';
    unsigned n = stepaf_ofi_choose(&ofi_fabric_library, &env, NULL, false, infos, refused, reason);
    snprintf(taken, sizeof(taken), "%s", n ? stepaf_ofi_name(infos[0]) : "");
    if (n)
        ofi_fabric_library.freeinfo(infos[0]);
    CU_ASSERT(n < 2);
    return taken;
}

static void the_best_is_taken(void)
{
    static const char *const names[] = {"sockets", "tcp;ofi_rxm", "shm", "tcp;ofi_rxm", NULL};
    static const char *const strange[] = {"strange", "shm", NULL}, *const none[] = {NULL};

    ofi_fabric_reset(31);
    UNIT_STRING(choose(names, ""), "tcp;ofi_rxm");
    UNIT_STRING(refused, "shm (only on request), sockets (not the best)");
    UNIT_STRING(choose(names, "shm"), "shm");
    UNIT_CONTAINS(refused, "sockets (not requested)");
    UNIT_STRING(choose(strange, ""), "");
    UNIT_STRING(reason, "libfabric has no provider of the usual ones: strange (only on request), "
                        "shm (only on request)");
    UNIT_STRING(choose(strange, "efa"), "");
    UNIT_CONTAINS(reason, "libfabric has no provider efa: strange (not requested)");
    UNIT_STRING(choose(strange, "strange"), "strange");
    UNIT_STRING(choose(none, ""), "");
    UNIT_CONTAINS(reason, "libfabric has no provider of reliable datagrams: ");
}

static void what_it_lacks_is_said(void)
{
    static const char *const names[] = {"efa", NULL}, *const usual[] = {"tcp;ofi_rxm", "sockets",
                                                                        NULL};

    ofi_fabric_reset(32);
    ofi_fabric.cq_data_size = 2;
    UNIT_STRING(choose(names, ""), "");
    UNIT_CONTAINS(reason, "efa (its writes carry fewer than 32 bits)");
    ofi_fabric_reset(32);
    ofi_fabric.mr_mode |= FI_MR_MMU_NOTIFY;
    UNIT_STRING(choose(names, ""), "");
    UNIT_CONTAINS(reason, "efa (it requires another way to register memory)");
    ofi_fabric_reset(32);
    ofi_fabric.mode = FI_MSG_PREFIX;
    UNIT_STRING(choose(names, ""), "");
    UNIT_CONTAINS(reason, "efa (it requires another mode)");
    ofi_fabric_reset(32);
    ofi_fabric.max_msg = 1024;
    UNIT_STRING(choose(names, ""), "");
    UNIT_CONTAINS(reason, "efa (its writes are too short)");
    ofi_fabric_reset(32);
    ofi_fabric.prov_version = FI_VERSION(117, 0);
    UNIT_STRING(choose(usual, ""), "tcp;ofi_rxm");
    ofi_fabric.prov_version = FI_VERSION(206, 0);
    UNIT_STRING(choose(usual, ""), "sockets");
    ofi_fabric.prov_version = FI_VERSION(201, 0);
    UNIT_STRING(choose(usual, ""), "sockets");
    UNIT_STRING(choose(usual, "tcp;ofi_rxm"), "");
    UNIT_CONTAINS(reason, "tcp;ofi_rxm (since libfabric 2.1 it ends the process");
}

/* That its completions carry data holds for messages alone, except on request. */
static void slingshot_gives_way(void)
{
    static const char *const names[] = {"cxi", "tcp;ofi_rxm", NULL};

    ofi_fabric_reset(37);
    ofi_fabric.cq_data_size = 8;
    UNIT_STRING(choose(names, ""), "tcp;ofi_rxm");
    UNIT_CONTAINS(refused, "cxi (its writes carry no data without FI_CXI_ENABLE_WRITEDATA=1");
    UNIT_STRING(choose(names, "cxi"), "");
    UNIT_CONTAINS(reason, "libfabric has no provider cxi: cxi (its writes carry no data without");
    (void)setenv("FI_CXI_ENABLE_WRITEDATA", "0", 1);
    UNIT_STRING(choose(names, "cxi"), "");
    (void)setenv("FI_CXI_ENABLE_WRITEDATA", "1", 1);
    UNIT_STRING(choose(names, "cxi"), "cxi");
    UNIT_STRING(choose(names, ""), "tcp;ofi_rxm");
    UNIT_CONTAINS(refused, "cxi (only on request)");
    (void)unsetenv("FI_CXI_ENABLE_WRITEDATA");
}

/* Of one provider, with the same domains. */
static void efa_has_two_fabrics(void)
{
    static const char *const names[] = {"efa-direct", "efa", NULL}, *const one[] = {"efa", NULL};

    ofi_fabric_reset(39);
    UNIT_STRING(choose(names, ""), "efa-direct");
    UNIT_STRING(refused, "efa (not the best)");
    UNIT_STRING(choose(names, "efa"), "efa");
    UNIT_STRING(refused, "efa-direct (not requested)");
    UNIT_STRING(choose(names, "efa-direct"), "efa-direct");
    UNIT_STRING(choose(names, "tcp"), "");
    UNIT_CONTAINS(reason, "tcp: efa-direct (not requested), efa (not requested)");
    UNIT_STRING(choose(one, "efa-direct"), "");
    UNIT_STRING(choose(one, ""), "efa");
}

static void it_is_only_used_if_asked_for(void)
{
    fabric_ask_used_if_listed(&stepaf_ofi_ops);
}

static void it_is_described(void)
{
    static const char *const asked[] = {"STEPAF_OFI_PROVIDER", "efa", NULL};

    ofi_fabric_reset(33);
    side_settings = asked;
    CU_ASSERT_EQUAL(side_try_open(&a, 1), STEPAF_OK);
    side_ops->describe(a.transport, reason);
    UNIT_STRING(reason, "efa, domain made-up, address endpoint 0");
    CU_ASSERT(side_ops->probe(&a.env, reason));
    UNIT_STRING(reason, "");
    side_ops->shrink(a.transport);
    side_ops->describe(a.transport, reason);
    UNIT_STRING(reason, "efa, domain made-up");
    side_close(&a);
    side_settings = NULL;
}

/* Each call that opens something fails in turn. */
static void what_cannot_be_opened_leaves_nothing(void)
{
    static const char *const asked[] = {"STEPAF_TRANSPORTS", "ofi", NULL};
    int n = 0;

    side_settings = asked;
    for (stepaf_status_t status = STEPAF_ERR_NO_TRANSPORT; status; n++) {
        ofi_fabric_reset(34);
        ofi_fabric.mr_mode = FI_MR_ENDPOINT;
        ofi_fabric.refuse_call = n + 1;
        status = side_try_open(&a, 2);
        if (!status)
            side_close(&a);
        else
            UNIT_STRING(stepaf_last_error()->text, "ofi: efa: cannot open: Cannot allocate memory");
        CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
        CU_ASSERT(!status || status == STEPAF_ERR_NO_TRANSPORT);
    }
    CU_ASSERT(n > 10);
    ofi_fabric_reset(35);
    ofi_fabric.mr_mode = 0;
    ofi_fabric.taken_keys = 1000; /* no key is free, ever */
    CU_ASSERT_EQUAL(side_try_open(&a, 2), STEPAF_ERR_NO_TRANSPORT);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
    side_settings = NULL;
}

/* Entries of the queue of a rank with so many peers, where the device has at most @a most. */
static size_t queue_of(const char *provider, unsigned n_peers, size_t most)
{
    const char *names[] = {provider, NULL};
    const char *asked[] = {"STEPAF_TRANSPORTS", "ofi", "STEPAF_OFI_PROVIDER", provider, NULL};

    ofi_fabric_reset(38);
    ofi_fabric.names = names;
    ofi_fabric.queue_max = most;
    side_settings = asked;
    CU_ASSERT_EQUAL(side_try_open(&a, n_peers), STEPAF_OK);
    side_settings = NULL;
    side_close(&a);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
    return ofi_fabric.queue;
}

/* EFA does not wait where a queue is full. */
static void its_queue_has_room_for_all(void)
{
    const size_t all = 32 * 16 * 9 + 512 + 128;

    CU_ASSERT_EQUAL(queue_of("efa", 2, 0), 4096);
    CU_ASSERT_EQUAL(queue_of("efa", 32, 0), all);
    CU_ASSERT_EQUAL(queue_of("efa", 32, all - 1), 4096);
    CU_ASSERT_EQUAL(queue_of("tcp;ofi_rxm", 32, 0), 4096);
    CU_ASSERT_EQUAL(queue_of("efa", 256, 0), 37504);
    CU_ASSERT_EQUAL(queue_of("efa", 256, 20000), 37504 / 2);
}

static void reset_for_starved(void)
{
    ofi_fabric_reset(36);
}

static void memory_may_run_out_anywhere(void)
{
    fabric_ask_starved("ofi", reset_for_starved, &ofi_fabric.n_open);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the best is taken", the_best_is_taken},
        {"what it lacks is said", what_it_lacks_is_said},
        {"Slingshot gives way", slingshot_gives_way},
        {"efa has two fabrics", efa_has_two_fabrics},
        {"it is only used if asked for", it_is_only_used_if_asked_for},
        {"it is described", it_is_described},
        {"what cannot be opened leaves nothing", what_cannot_be_opened_leaves_nothing},
        {"its queue has room for all", its_queue_has_room_for_all},
        {"memory may run out anywhere", memory_may_run_out_anywhere},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
