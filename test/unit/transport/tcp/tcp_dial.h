/* SPDX-License-Identifier: Apache-2.0 */
/* Two TCP ranks, of which a connects to what b has announced, or to something else. */
#ifndef STEPAF_TEST_TCP_DIAL_H
#define STEPAF_TEST_TCP_DIAL_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/time.h"
#include "tcp_side.h"
#include "unit.h"

static struct side a, b;

static inline void begin(void)
{
    tcp_set_defaults();
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
}

static inline void end(void)
{
    side_close(&a);
    side_close(&b);
}

/* What b announces, but with other addresses; loopback, so that they are tried in this order. */
static inline struct stepaf_pack announcement(const uint8_t (*addresses)[4], unsigned n,
                                              uint16_t port)
{
    struct stepaf_net_addresses list = {.n = n};
    struct stepaf_pack pack = {0};

    for (unsigned i = 0; i < n; i++) {
        list.list[i] = (struct stepaf_net_address){.family = AF_INET, .loopback = true};
        memcpy(list.list[i].bytes, addresses[i], 4);
    }
    stepaf_pack_bytes(&pack, tcp_of(&b)->secret, sizeof tcp_of(&b)->secret);
    stepaf_pack_u64(&pack, stepaf_net_kernel_id());
    stepaf_pack_u64(&pack, stepaf_net_network_id());
    stepaf_pack_u32(&pack, port);
    stepaf_tcp_addresses_pack(&list, &pack);
    return pack;
}

static inline void connect_by(struct stepaf_pack *pack)
{
    CU_ASSERT_PTR_NULL(side_connect(&b, 0, &a, 0, 0, NULL));
    CU_ASSERT_PTR_NULL(side_connect(&a, 0, &b, 0, 0, pack));
    free(pack->data);
}

static inline bool a_is_up(void *arg)
{
    (void)arg;
    return tcp_link(&a, 0)->up;
}

static inline bool comes_up(void)
{
    struct side *sides[] = {&a, &b};

    return tcp_until(sides, 2, a_is_up, NULL);
}

#endif
