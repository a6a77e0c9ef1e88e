/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of talk have in common. */
#ifndef STEPAF_BOOT_TALK_INSIDE_H
#define STEPAF_BOOT_TALK_INSIDE_H

#include "boot/control/control.h"
#include "boot/talk.h"

/* What waits for a connection. */
struct talk_letter {
    struct talk_letter *next;
    size_t bytes;
    uint8_t data[];
};

/* Another rank. */
struct talk_other {
    struct stepaf_accord_addresses addresses;
    unsigned at;      /* the next address to call */
    int64_t until_ns; /* for the address that is being called */
    struct talk_letter *letters;
    char reason[STEPAF_TALK_REASON_MAX]; /* why it is lost, or the last call came to nothing */
};

struct stepaf_talk {
    struct stepaf_control control;
    struct stepaf_accord accord;
    struct stepaf_accord_addresses own;
    struct talk_other *others; /* by rank */
};

#endif
