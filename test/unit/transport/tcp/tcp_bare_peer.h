/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP rank whose one peer is made of bare sockets, for the tests of what such a peer does. */
#ifndef STEPAF_TEST_TCP_BARE_PEER_H
#define STEPAF_TEST_TCP_BARE_PEER_H

#include <stdlib.h>
#include <unistd.h>

#include "tcp_side.h"
#include "unit.h"

enum { REGION = 100, BYTES = 8192, ROOM = BYTES + 128, AT_TAIL = 24 + 64 };

static struct side b;
static int fds[STEPAF_TCP_CONNECTIONS_MAX];
static struct stepaf_mem *region;
static uint8_t data[BYTES], frame[ROOM];
static const char *tcp_threads = "0";

/* A peer of bare sockets. */
static inline void begin(unsigned n_connections)
{
    static const char *const numbers[] = {"", "1", "2", "3"};

    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECTIONS", numbers[n_connections]);
    tcp_set("STEPAF_TCP_THREADS", tcp_threads);
    tcp_open(&b, false, 1);
    tcp_expect_bare(&b, 0);
    for (unsigned i = 0; i < n_connections; i++)
        fds[i] = tcp_bare(&b, 0, i);
    region = side_memory(&b, BYTES, false);
    side_must(region->id == REGION && tcp_link(&b, 0)->up, "begin");
    memset(region->base, 0x5a, BYTES);
    memset(data, 0xa5, BYTES);
}

static inline void end(void)
{
    for (unsigned i = 0; i < tcp_of(&b)->n_connections; i++)
        close(fds[i]);
    side_close(&b);
}

static inline bool is_untouched(void)
{
    size_t wrong = 0;

    for (size_t i = 0; i < BYTES; i++)
        wrong += region->base[i] != 0x5a;
    return !wrong;
}

/* Send a PART on a connection: @a bytes of data. */
static inline void send_part(unsigned connection, uint32_t region_id, uint64_t offset,
                             uint32_t bytes)
{
    struct stepaf_tcp_head head = {.kind = STEPAF_TCP_PART, .n_xfer = 1};
    struct stepaf_tcp_descriptor descriptor = {region_id, bytes, offset};

    tcp_bare_send(fds[connection], &head, sizeof head);
    tcp_bare_send(fds[connection], &descriptor, sizeof descriptor);
    tcp_bare_send(fds[connection], data, bytes);
    tcp_bare_send(fds[connection], data, stepaf_tcp_space(24 + bytes));
}

static inline void settle(void)
{
    for (int i = 0; i < 20; i++) {
        side_progress(&b);
        usleep(500);
    }
}

/* Send all of a frame but its message, take it in, then send that: as if it were a large one. */
static inline void send_frame_with_parts(uint32_t parts, uint32_t seq)
{
    size_t bytes = tcp_frame(frame, REGION, 0, data, 64, parts, seq);

    tcp_bare_send(fds[0], frame, AT_TAIL);
    settle();
    tcp_bare_send(fds[0], frame + AT_TAIL, bytes - AT_TAIL);
    settle();
}

#endif
