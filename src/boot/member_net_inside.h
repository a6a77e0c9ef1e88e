/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of net have in common. */
#ifndef STEPAF_BOOT_MEMBER_NET_INSIDE_H
#define STEPAF_BOOT_MEMBER_NET_INSIDE_H

#include "boot/control/control.h"
#include "boot/member_net.h"

/* What waits for a connection. */
struct member_queued {
    struct member_queued *next;
    size_t bytes;
    uint8_t data[];
};

/* Another rank. */
struct member_other {
    struct stepaf_consensus_addresses addresses;
    unsigned at;      /* the next address to call */
    int64_t until_ns; /* for the address that is being called */
    struct member_queued *queue;
    char
        reason[STEPAF_MEMBER_NET_REASON_MAX]; /* why it is lost, or the last call came to nothing */
};

struct stepaf_member_net {
    struct stepaf_control control;
    struct stepaf_consensus consensus;
    struct stepaf_consensus_addresses own;
    struct member_other *others; /* by rank */
};

#endif
