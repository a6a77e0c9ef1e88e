/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of queue pairs, checked against the port and against each other. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "transport/verbs/rail.h"

enum {
    /* full member: may talk to all members; a limited one only to full members */
    PKEY_FULL = 0x8000,
    PKEY_PARTITION = 0x7fff,
    ETHERNET_SL_MAX = 7,  /* on Ethernet it is the priority in a VLAN's tag */
    ACK_TIMEOUT_MIN = 14, /* 67 ms: packets delayed by no more than that are not lost */
    ACK_TIMEOUT_MAX = 31
};

_Static_assert((int)STEPAF_ENV_VERBS_MTU_256 == (int)IBV_MTU_256 &&
                   (int)STEPAF_ENV_VERBS_MTU_4096 == (int)IBV_MTU_4096,
               "words of STEPAF_VERBS_MTU are libibverbs' numbers");

static unsigned mtu_bytes(unsigned mtu)
{
    return 128u << mtu;
}

static stepaf_status_t choose_mtu(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail,
                                  const struct ibv_port_attr *port)
{
    int setting = verbs->base.up->env->verbs_mtu;

    rail->port.mtu = (uint8_t)port->active_mtu;
    if (setting == STEPAF_ENV_VERBS_MTU_auto)
        return STEPAF_OK;
    if (setting > (int)port->active_mtu)
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                                "STEPAF_VERBS_MTU=%u: %s has an active MTU of %u",
                                mtu_bytes((unsigned)setting), rail->name,
                                mtu_bytes(port->active_mtu));
    rail->port.mtu = (uint8_t)setting;
    return STEPAF_OK;
}

static stepaf_status_t check_classes(const struct stepaf_verbs *verbs,
                                     const struct stepaf_verbs_rail *rail)
{
    const struct stepaf_env *env = verbs->base.up->env;

    if (rail->port.link_layer == IBV_LINK_LAYER_ETHERNET &&
        env->verbs_service_level > ETHERNET_SL_MAX)
        return stepaf_error_set(
            STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
            "STEPAF_VERBS_SERVICE_LEVEL=%d: %s is on Ethernet, whose priorities "
            "are 0 to %d",
            (int)env->verbs_service_level, rail->name, ETHERNET_SL_MAX);
    if (env->verbs_traffic_class && !rail->global && !rail->cm)
        stepaf_log_warn("STEPAF_VERBS_TRAFFIC_CLASS=%d: %s sends no global header, which has the "
                        "traffic class: on InfiniBand, set STEPAF_VERBS_SERVICE_LEVEL",
                        (int)env->verbs_traffic_class, rail->name);
    return STEPAF_OK;
}

/* Return the table's entry; 0 if there is none. */
static uint16_t pkey_at(const struct stepaf_verbs *verbs, const struct stepaf_verbs_rail *rail,
                        unsigned index)
{
    uint16_t pkey;

    return verbs->provider->query_pkey(rail->context, rail->port.number, (int)index, &pkey) ? 0
                                                                                            : pkey;
}

/* Find the best entry of @a partition, or of any partition if that is 0: one of a full member, else
 * the first. */
static bool find_pkey(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail, unsigned n,
                      unsigned partition)
{
    bool found = false;

    for (unsigned i = 0; i < n; i++) {
        uint16_t pkey = pkey_at(verbs, rail, i);
        if (!(pkey & PKEY_PARTITION) || (partition && (pkey & PKEY_PARTITION) != partition) ||
            (found && !(pkey & PKEY_FULL)))
            continue;
        rail->port.pkey = pkey;
        rail->port.pkey_index = (uint16_t)i;
        found = true;
        if (pkey & PKEY_FULL)
            break;
    }
    return found;
}

static stepaf_status_t bad_pkey(const char *name, const char *value,
                                const struct stepaf_verbs_rail *rail, const char *what)
{
    return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT, "%s=%.20s: %s %s", name, value,
                            rail->name, what);
}

/* Take the entry that STEPAF_VERBS_PKEY_INDEX names; it must be of the partition if one is named as
 * well. */
static stepaf_status_t take_pkey(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail,
                                 unsigned n, unsigned partition)
{
    const char *text = verbs->base.up->env->verbs_pkey_index;
    unsigned long index = strtoul(text, NULL, 10); /* only digits */
    char what[64];

    snprintf(what, sizeof(what), "has P_Keys 0 to %u", n ? n - 1 : 0);
    if (index >= n)
        return bad_pkey("STEPAF_VERBS_PKEY_INDEX", text, rail, what);
    rail->port.pkey = pkey_at(verbs, rail, (unsigned)index);
    rail->port.pkey_index = (uint16_t)index;
    if (!(rail->port.pkey & PKEY_PARTITION))
        return bad_pkey("STEPAF_VERBS_PKEY_INDEX", text, rail, "has none at this index");
    snprintf(what, sizeof(what), "has 0x%04x at this index, not STEPAF_VERBS_PKEY",
             rail->port.pkey);
    if (partition && (rail->port.pkey & PKEY_PARTITION) != partition)
        return bad_pkey("STEPAF_VERBS_PKEY_INDEX", text, rail, what);
    return STEPAF_OK;
}

static stepaf_status_t choose_pkey(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail,
                                   unsigned n)
{
    const char *value = verbs->base.up->env->verbs_pkey;
    const char *index = verbs->base.up->env->verbs_pkey_index;
    unsigned long partition = 0;
    char *end;

    if (value[0]) {
        partition = strtoul(value, &end, 0);
        if (value[0] < '0' || value[0] > '9' || *end || partition > UINT16_MAX ||
            !(partition & PKEY_PARTITION))
            return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                                    "STEPAF_VERBS_PKEY=%.20s: not a P_Key such as 0x8001", value);
        partition &= PKEY_PARTITION;
    }
    if ((value[0] || index[0]) && (rail->cm || rail->iwarp))
        return bad_pkey(value[0] ? "STEPAF_VERBS_PKEY" : "STEPAF_VERBS_PKEY_INDEX",
                        value[0] ? value : index, rail,
                        rail->iwarp
                            ? "is iWARP, which has none"
                            : "is connected by librdmacm, which uses that of the IP interface");
    if (index[0])
        return take_pkey(verbs, rail, n, (unsigned)partition);
    if (!find_pkey(verbs, rail, n, (unsigned)partition) && partition)
        return bad_pkey("STEPAF_VERBS_PKEY", value, rail, "is not in this partition");
    return STEPAF_OK;
}

stepaf_status_t stepaf_verbs_attributes_choose(const struct stepaf_verbs *verbs,
                                               struct stepaf_verbs_rail *rail,
                                               const struct ibv_port_attr *port)
{
    stepaf_status_t status = choose_mtu(verbs, rail, port);

    if (!status)
        status = check_classes(verbs, rail);
    if (!status)
        status = choose_pkey(verbs, rail, port->pkey_tbl_len);
    return status;
}

/* Return how long a device retransmits: each try takes at least 4.096 us * 2^exponent. */
static double window_us(int exponent, int64_t retries)
{
    return 4.096 * (double)(1ull << exponent) * (double)(retries + 1);
}

void stepaf_verbs_timeout_choose(struct stepaf_verbs *verbs)
{
    const struct stepaf_env *env = verbs->base.up->env;
    double promised_us = (double)env->verbs_peer_timeout_us;
    int exponent = (int)env->verbs_timeout;

    if (!exponent) {
        exponent = ACK_TIMEOUT_MIN;
        while (exponent < ACK_TIMEOUT_MAX && window_us(exponent, env->verbs_retry) < promised_us)
            exponent++;
    } else if (window_us(exponent, env->verbs_retry) < promised_us) {
        stepaf_log_warn("STEPAF_VERBS_TIMEOUT=%d and STEPAF_VERBS_RETRY=%d let a device give up a "
                        "peer after %.3g s, before the %.3g s of STEPAF_VERBS_PEER_TIMEOUT_US: "
                        "unset STEPAF_VERBS_TIMEOUT to derive it from the latter",
                        exponent, (int)env->verbs_retry,
                        window_us(exponent, env->verbs_retry) / 1e6, promised_us / 1e6);
    }
    verbs->qp.ack_timeout = (uint8_t)exponent;
}
