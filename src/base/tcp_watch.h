/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the host at the other end of a TCP connection answers, by looks at what the kernel knows. A
 * host whose program does not read answers all the same, each time it is asked. Keepalive asks only
 * where nothing is on its way, and TCP_USER_TIMEOUT would also end the connection to a program that is
 * only too busy to read. */
#ifndef STEPAF_BASE_TCP_WATCH_H
#define STEPAF_BASE_TCP_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* What a look at a connection leaves for the next one. */
struct stepaf_tcp_watch {
    uint8_t timeouts; /* after which the kernel was to send again, since the last acknowledgement */
    bool stuck;       /* and it could not */
    bool heard;       /* something came since the look before this one */
    uint64_t since;   /* when what is sent may be unanswered, by every look; 0: it is not */
};

/* When a look takes place. */
struct stepaf_tcp_look {
    uint64_t now, timeout; /* in one unit, the caller's */
    uint32_t since_ms;     /* the look before was no longer ago */
    bool is_first;         /* or so long ago that it tells nothing */
};

/* Whether the other end's host has owed an answer for longer than the timeout, by this look and those
 * before. */
bool stepaf_tcp_watch_is_silent(struct stepaf_tcp_watch *watch, int fd,
                                const struct stepaf_tcp_look *look);

/* Whether nothing has come since this end last sent something that is to be acknowledged, by what the
 * kernel says of the connection, which is @a info. */
struct tcp_info;
bool stepaf_tcp_is_unanswered(const struct tcp_info *info, struct stepaf_tcp_watch *watch,
                              uint32_t since_ms);

#endif
