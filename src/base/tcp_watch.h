/* SPDX-License-Identifier: Apache-2.0 */
/* Find out whether the host at the other end of a TCP connection answers, by polls of the kernel's
 * state. A host whose program does not read still answers, each time it is asked. Keepalive asks
 * only while nothing is in flight, and TCP_USER_TIMEOUT would also end the connection to a program
 * that is only too busy to read. */
#ifndef STEPAF_BASE_TCP_WATCH_H
#define STEPAF_BASE_TCP_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* State that a poll of a connection leaves for the next one. */
struct stepaf_tcp_watch {
    uint8_t timeouts; /* retransmission timeouts since the last acknowledgement */
    bool stuck;       /* the kernel could not retransmit */
    bool heard;       /* something arrived since the poll before this one */
    uint64_t since;   /* since when sent data may be unanswered, by every poll; 0: it is not */
};

/* Time of a poll. */
struct stepaf_tcp_look {
    uint64_t now, timeout; /* in one unit, the caller's */
    uint32_t since_ms;     /* the poll before was at most this long ago */
    bool is_first;         /* or so long ago that it tells nothing */
};

/* Return whether the other host has owed an answer for longer than the timeout, by this poll and
 * earlier ones. */
bool stepaf_tcp_watch_is_silent(struct stepaf_tcp_watch *watch, int fd,
                                const struct stepaf_tcp_look *look);

/* Return whether nothing has arrived since this end last sent something that must be acknowledged,
 * by the kernel's state of the connection, @a info. */
struct tcp_info;
bool stepaf_tcp_is_unanswered(const struct tcp_info *info, struct stepaf_tcp_watch *watch,
                              uint32_t since_ms);

#endif
