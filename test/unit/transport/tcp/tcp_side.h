/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of the TCP transport in one process over loopback, and a peer that is a bare socket. */
#ifndef STEPAF_TEST_TCP_SIDE_H
#define STEPAF_TEST_TCP_SIDE_H

#include "transport/side.h"
#include "transport/tcp/tcp.h"

enum { TCP_WAIT_MS = 10000 };

static inline struct stepaf_tcp *tcp_of(const struct side *side)
{
    return (struct stepaf_tcp *)side->transport;
}

static inline struct stepaf_tcp_link *tcp_link(const struct side *side, uint32_t peer)
{
    return (struct stepaf_tcp_link *)side->links[peer];
}

/* Set a setting of sides opened from now on; NULL: as if it were not set. */
void tcp_set(const char *name, const char *value);
/* Loopback, one connection, tensors copied, and striped from 64 KiB on. */
void tcp_set_defaults(void);

void tcp_open(struct side *side, bool initiates, unsigned n_peers);
/* Let all advance until @a done says so; false if it never does. */
bool tcp_until(struct side *const *sides, unsigned n, bool (*done)(void *arg), void *arg);
/* Link @a attention, as its peer @a peer, and @a ffn, which knows it by @a slot; wait until both
 * are up. */
void tcp_join(struct side *attention, uint32_t peer, struct side *ffn, uint32_t slot);
/* Let both advance until @a receiver has @a n messages, or is told that a peer is lost. */
bool tcp_until_messages(struct side *sender, struct side *receiver, unsigned n);
bool tcp_until_lost(struct side *side);

/* Make room small for all of a link's sockets at both ends. */
void tcp_squeeze(const struct side *one, const struct side *other);

/* Make @a ffn know a peer that has no end of its own. */
void tcp_expect_bare(struct side *ffn, uint32_t peer);
/* Connect to it, without a word; a blocking socket. */
int tcp_bare_dial(const struct side *ffn);
/* Connect and be accepted as that peer's connection. */
int tcp_bare(struct side *ffn, uint32_t peer, uint32_t connection);
/* Its hello, and its answer to the challenge @a challenge. */
struct stepaf_tcp_hello tcp_hello(const struct side *ffn, uint32_t peer, uint32_t connection);
struct stepaf_tcp_answer tcp_answer(const struct side *ffn, const struct stepaf_tcp_hello *hello,
                                    const struct stepaf_tcp_challenge *challenge);
/* Let @a ffn advance until as many bytes have come from it; false if they do not. */
bool tcp_bare_read(struct side *ffn, int fd, void *data_p, size_t bytes);
void tcp_bare_send(int fd, const void *data, size_t bytes);
/* Whether the other end has closed it, within the time; reads and forgets. */
bool tcp_bare_is_closed(struct side *ffn, int fd);

/* Pages of this process, filled with 7. */
uint8_t *tcp_map(size_t bytes);

/* Close with a reset. */
void tcp_reset(int fd);
/* Files that this process has open. */
int tcp_open_files(void);

/* Write a FRAME of one tensor and a message with @a seq; return its length. */
size_t tcp_frame(uint8_t *frame_p, uint32_t region, uint64_t offset, const void *data,
                 uint32_t bytes, uint32_t parts, uint32_t seq);

#endif
