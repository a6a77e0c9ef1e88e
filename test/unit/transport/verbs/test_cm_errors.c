/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA connected by librdmacm: what can go wrong until all are connected, and who should not be. */
#include <errno.h>
#include <stdlib.h>

#include "unit.h"
#include "verbs_call.h"

static struct vside a, b;
static char reason[STEPAF_REASON_MAX];

static void begin(const char *settings)
{
    calls_open(&a, &b, settings);
    calls_meet(&a, &b);
    calls_drive(&a, &b);
}

static void end(void)
{
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

/* The side's join fails so, and says where. */
static void expect(struct vside *side, stepaf_status_t status, const char *words)
{
    char number[24];

    snprintf(number, sizeof(number), "queue pair 0x%x", calls_qpn(side, 0));
    CU_ASSERT_EQUAL(calls_join(side, reason), status);
    UNIT_CONTAINS(reason, words);
    UNIT_CONTAINS(reason, "fake0:1");
    UNIT_CONTAINS(reason, number);
}

static void expect_unopened(const char *settings, stepaf_status_t status, const char *words)
{
    vside_settings = settings;
    CU_ASSERT_EQUAL(vside_try(&a, 2), status);
    UNIT_CONTAINS(stepaf_last_error()->text, words);
    UNIT_CONTAINS(stepaf_last_error()->text, "fake0");
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static void what_is_missing_is_named(void)
{
    verbs_device_reset();
    verbs_device.no_cm = true;
    verbs_device_take_place();
    expect_unopened("VERBS_CONNECT=cm", STEPAF_ERR_UNSUPPORTED, "built without it");
    verbs_device.is_iwarp = true;
    expect_unopened("NET_DEVICES=fake0", STEPAF_ERR_UNSUPPORTED, "built without it");
    verbs_device_reset();
    verbs_device.is_iwarp = true;
    verbs_cm.no_address = true;
    expect_unopened("", STEPAF_ERR_NO_TRANSPORT, "no IP address");
    verbs_cm.no_channel = true;
    expect_unopened("", STEPAF_ERR_NO_TRANSPORT, "/dev/infiniband/rdma_cm");
    verbs_device_reset();
    verbs_cm.busy_ports = 100;
    expect_unopened("VERBS_CONNECT=cm", STEPAF_ERR_NO_TRANSPORT, "cannot listen: Address");
    verbs_cm.busy_ports = 2;
    expect_unopened("VERBS_CONNECT=cm NET_PORTS=7-8", STEPAF_ERR_NO_TRANSPORT, "NET_PORTS=7-8");
}

/* Every step's failure names its phase, event and status. */
static void each_phase_fails_in_words(void)
{
    verbs_device_reset();
    verbs_cm.fail_address = -EHOSTUNREACH;
    begin("");
    expect(&a, STEPAF_ERR_NO_TRANSPORT, "resolving 10.0.0.1:");
    UNIT_CONTAINS(reason, "unreachable, status -113: No route to host");
    expect(&b, STEPAF_ERR_TIMEOUT, "it has not connected");
    end();
    verbs_device_reset();
    verbs_cm.fail_route = -ETIMEDOUT;
    begin("");
    expect(&a, STEPAF_ERR_NO_TRANSPORT, "finding the route to 10.0.0.1:");
    end();
    verbs_device_reset();
    verbs_cm.fail_connect = -ETIMEDOUT;
    begin("");
    expect(&a, STEPAF_ERR_NO_TRANSPORT, "connecting to 10.0.0.1:");
    UNIT_CONTAINS(reason, "status -110: Connection timed out");
    end();
    verbs_device_reset();
    verbs_cm.other_device = true;
    begin("");
    expect(&a, STEPAF_ERR_NO_TRANSPORT, "uses another device");
    end();
}

static void nobody_listens(void)
{
    for (int iwarp = 0; iwarp < 2; iwarp++) {
        verbs_device_reset();
        verbs_device.is_iwarp = iwarp;
        verbs_cm.nobody_listens = true;
        begin("");
        expect(&a, STEPAF_ERR_NO_TRANSPORT, "no process listens there");
        UNIT_CONTAINS(reason, iwarp ? "rejected, status -111" : "rejected, status 8");
        end();
    }
}

static void what_never_comes_is_not_waited_for(void)
{
    verbs_device_reset();
    verbs_cm.silent = true;
    begin("VERBS_QPS=2");
    expect(&a, STEPAF_ERR_TIMEOUT, "not in time: resolving 10.0.0.1:");
    expect(&b, STEPAF_ERR_TIMEOUT, "not in time: it has not connected");
    CU_ASSERT_EQUAL(((struct stepaf_verbs *)a.transport)->cm.n_open, 0);
    end();
    verbs_device_reset();
    verbs_device.holds = true; /* connected, but the first word does not arrive */
    begin("");
    expect(&b, STEPAF_ERR_TIMEOUT, "no data arrives");
    end();
    verbs_device_reset();
    verbs_device.is_iwarp = true;
    verbs_device.holds = true;
    begin("");
    expect(&a, STEPAF_ERR_TIMEOUT, "connected to 10.0.7.1:");
    UNIT_CONTAINS(reason, "no data arrives");
    end();
}

/* One of two peers cannot be reached: it is named, and the other one is connected. */
static void one_peer_does_not_hinder_another(void)
{
    static struct vside c;
    uint32_t peer = 0;

    verbs_device_reset();
    vside_settings = "VERBS_CONNECT=cm";
    vside_open(&b, 1);
    vside_open(&c, 1);
    vside_initiates = true;
    vside_open(&a, 2);
    vside_initiates = false;
    struct stepaf_pack of_a = vside_pack(&a);
    CU_ASSERT_PTR_NULL_FATAL(vside_connect(&a, 0, &b, 0, NULL));
    CU_ASSERT_PTR_NULL_FATAL(vside_connect(&a, 1, &c, 0, NULL));
    CU_ASSERT_PTR_NULL_FATAL(vside_connect(&b, 0, &a, 0, &of_a));
    stepaf_verbs_cm_unlisten((struct stepaf_verbs *)c.transport);
    calls_drive(&a, &b);
    CU_ASSERT_EQUAL(stepaf_verbs_ops.finish_connects(a.transport, 0, 0, &peer, reason),
                    STEPAF_ERR_NO_TRANSPORT);
    CU_ASSERT_EQUAL(peer, 1);
    CU_ASSERT_EQUAL(calls_state(&a, 0), STEPAF_VERBS_CALL_UP);
    CU_ASSERT_EQUAL(calls_join(&b, reason), STEPAF_OK);
    free(of_a.data);
    vside_close(&c);
    end();
}

static const uint64_t *secret_of(const struct vside *side)
{
    return ((const struct stepaf_verbs *)side->transport)->secret;
}

/* What a would say of queue pair @a place. */
static struct stepaf_verbs_request request_of(uint32_t place)
{
    struct stepaf_verbs_request request = {
        .magic = STEPAF_VERBS_REQUEST_MAGIC, .place = place, .nonce = {1, 2}};
    struct stepaf_claim claim = stepaf_verbs_claim(request.magic, place, request.nonce);

    stepaf_claim_prove(secret_of(&a), secret_of(&b), &claim, request.proof);
    return request;
}

/* Whoever does not know the secrets is rejected, and the peer itself is taken as if nothing had
 * been. */
static void strangers_change_nothing(void)
{
    struct stepaf_verbs_request request;
    uint8_t *bytes = (uint8_t *)&request;
    unsigned sent = 0;

    verbs_device_reset();
    calls_open(&a, &b, "");
    calls_meet(&a, &b);
    request = request_of(0);
    uint16_t port = ((const struct stepaf_verbs *)b.transport)->rails[0].listens;
    for (size_t bit = 0; bit < sizeof(request) * 8; bit += 19, sent++) {
        bytes[bit / 8] ^= 1u << bit % 8;
        verbs_cm_stranger(port, &request, sizeof(request));
        bytes[bit / 8] ^= 1u << bit % 8;
    }
    verbs_cm_stranger(port, &request, sizeof(request) - 1);
    verbs_cm_stranger(port, &request, 0);
    for (uint32_t place = 1; place <= 0x100; place += 0xff, sent++) { /* nobody awaits these */
        struct stepaf_verbs_request other = request_of(place);
        verbs_cm_stranger(port, &other, sizeof(other));
    }
    sent += 2;
    for (int steps = 0; steps < 10; steps++)
        (void)stepaf_verbs_cm_step((struct stepaf_verbs *)b.transport, 0, 0);
    CU_ASSERT_EQUAL(verbs_cm.n_rejected, sent);
    CU_ASSERT_EQUAL(verbs_cm.n_accepted, 0);
    CU_ASSERT_EQUAL(calls_state(&b, 0), STEPAF_VERBS_CALL_IDLE);
    calls_drive(&a, &b);
    CU_ASSERT_EQUAL(calls_state(&b, 0), STEPAF_VERBS_CALL_UP);
    verbs_cm_stranger(port, verbs_cm.said[0], sizeof(request)); /* once more what has been */
    ((struct stepaf_verbs *)b.transport)->looked = 0;
    stepaf_verbs_ops.check_peers(b.transport);
    CU_ASSERT_EQUAL(verbs_cm.n_rejected, sent + 1);
    CU_ASSERT_EQUAL(b.n_lost, 0);
    CU_ASSERT_EQUAL(calls_join(&a, reason), STEPAF_OK);
    CU_ASSERT_EQUAL(calls_join(&b, reason), STEPAF_OK);
    end();
}

/* Neither does anything that is said have a secret in it, nor is it the same twice. */
static void no_secret_goes_over_the_wire(void)
{
    uint8_t before[2][STEPAF_VERBS_CM_DATA];

    for (int round = 0; round < 2; round++) {
        verbs_device_reset();
        begin("");
        CU_ASSERT_EQUAL(calls_join(&a, reason), STEPAF_OK);
        CU_ASSERT_EQUAL(calls_join(&b, reason), STEPAF_OK);
        CU_ASSERT_EQUAL_FATAL(verbs_cm.n_said, 2);
        for (int m = 0; m < 2; m++)
            for (size_t i = 0; i + 8 <= STEPAF_VERBS_CM_DATA; i++)
                for (int k = 0; k < STEPAF_CLAIM_SECRET_WORDS; k++)
                    CU_ASSERT(memcmp(&verbs_cm.said[m][i], &secret_of(&a)[k], 8) != 0 &&
                              memcmp(&verbs_cm.said[m][i], &secret_of(&b)[k], 8) != 0);
        for (int m = 0; round && m < 2; m++)
            CU_ASSERT(memcmp(&verbs_cm.said[m][8], &before[m][8], 16) != 0);
        memcpy(before, verbs_cm.said, sizeof(before));
        end();
    }
}

/* Two that have been told different things of each other. */
static void a_wrong_secret_is_named_on_both_sides(void)
{
    struct stepaf_pack pack;

    verbs_device_reset();
    calls_open(&a, &b, "");
    pack = vside_pack(&b);
    ((struct stepaf_verbs *)b.transport)->secret[1] ^= 1;
    CU_ASSERT_PTR_NULL_FATAL(vside_connect(&a, 0, &b, 0, &pack));
    free(pack.data);
    CU_ASSERT_PTR_NULL_FATAL(vside_connect(&b, 0, &a, 0, NULL));
    calls_drive(&a, &b);
    expect(&a, STEPAF_ERR_NO_TRANSPORT, "rejected, status 28: it does not know the secret");
    expect(&b, STEPAF_ERR_TIMEOUT, "it has not connected");
    end();
    verbs_device_reset();
    verbs_cm.bad_answer = true;
    begin("");
    expect(&a, STEPAF_ERR_NO_TRANSPORT, "it does not know the secret");
    CU_ASSERT_EQUAL(calls_state(&b, 0), STEPAF_VERBS_CALL_ACCEPTED);
    expect(&b, STEPAF_ERR_TIMEOUT, "it has not confirmed");
    end();
}

static void an_end_that_cannot_be_made_ready(void)
{
    verbs_device_reset();
    verbs_device.refuse_rtr = EINVAL;
    begin("");
    expect(&b, STEPAF_ERR_NO_TRANSPORT, "accepting its connection: Invalid argument");
    expect(&a, STEPAF_ERR_NO_TRANSPORT, "it has failed to prepare its end");
    end();
    verbs_device_reset(); /* a's own, once b has accepted */
    calls_open(&a, &b, "");
    calls_meet(&a, &b);
    for (int i = 0; calls_state(&b, 0) != STEPAF_VERBS_CALL_ACCEPTED && i < 100; i++) {
        (void)stepaf_verbs_cm_step((struct stepaf_verbs *)a.transport, 0, 0);
        (void)stepaf_verbs_cm_step((struct stepaf_verbs *)b.transport, 0, 0);
    }
    verbs_device.refuse_rtr = EINVAL;
    calls_drive(&a, &b);
    expect(&a, STEPAF_ERR_NO_TRANSPORT, "preparing the queue pair: Invalid argument");
    end();
}

/* The peer goes while the connection is being made. */
static void a_peer_that_goes_is_noticed(void)
{
    verbs_device_reset();
    verbs_device.holds = true; /* b waits for the first word */
    begin("");
    CU_ASSERT_EQUAL(calls_state(&b, 0), STEPAF_VERBS_CALL_UNHEARD);
    verbs_cm_event(calls_qpn(&b, 0), STEPAF_VERBS_CM_DISCONNECTED, 0);
    calls_drive(&a, &b);
    expect(&b, STEPAF_ERR_NO_TRANSPORT, "accepting its connection: disconnected");
    CU_ASSERT_EQUAL(b.n_lost, 0);
    end();
}

/* Ends that are not connected in the same way do not even try. */
static void different_ways_do_not_fit(void)
{
    verbs_device_reset();
    calls_open(&a, &b, "");
    vside_close(&b);
    vside_settings = "VERBS_CONNECT=oob";
    vside_open(&b, 1);
    const char *why = vside_connect(&a, 0, &b, 0, NULL);
    UNIT_CONTAINS(why ? why : "", "connected by librdmacm, the other is not");
    why = vside_connect(&b, 0, &a, 0, NULL);
    UNIT_CONTAINS(why ? why : "", "fake0:1");
    CU_ASSERT_EQUAL(calls_join(&a, reason), STEPAF_OK); /* nothing was begun */
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is missing is named", what_is_missing_is_named},
        {"each phase fails in words", each_phase_fails_in_words},
        {"nobody listens", nobody_listens},
        {"what never comes is not waited for", what_never_comes_is_not_waited_for},
        {"one peer does not hinder another", one_peer_does_not_hinder_another},
        {"strangers change nothing", strangers_change_nothing},
        {"no secret goes over the wire", no_secret_goes_over_the_wire},
        {"a wrong secret is named on both sides", a_wrong_secret_is_named_on_both_sides},
        {"an end that cannot be made ready", an_end_that_cannot_be_made_ready},
        {"a peer that goes is noticed", a_peer_that_goes_is_noticed},
        {"different ways do not fit", different_ways_do_not_fit},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
