/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that is as simple as one can be and still carries whole jobs: between processes of a
 * node, each link a datagram socket, which loses nothing and keeps the order. A tensor travels in
 * packets, under the key that the receiver's memory was registered by. */
#ifndef STEPAF_TRANSPORT_TOY_TOY_H
#define STEPAF_TRANSPORT_TOY_TOY_H

#include "transport/transport.h"

enum { STEPAF_TOY_PIECE = 32 << 10 }; /* of a tensor, at most, in a packet */

/* In front of each packet. */
struct stepaf_toy_head {
    uint64_t token; /* the receiver's, so that it is a peer who sends */
    uint64_t key;   /* of the memory; 0: a message */
    uint64_t offset;
};

struct stepaf_toy_registration {
    struct stepaf_toy_registration *next;
    const struct stepaf_toy *owner;
    uint64_t key; /* random */
    uint32_t id;  /* of the memory */
};

struct stepaf_toy_rmem {
    struct stepaf_rmem base;
    uint64_t key;
};

struct stepaf_toy_link {
    struct stepaf_link base;
    uint64_t token; /* the peer's */
    int fd;
    bool used;
    bool broken; /* nobody takes what is sent; what has come still counts */
};

struct stepaf_toy {
    struct stepaf_transport base;
    struct stepaf_toy_link *links; /* by peer */
    unsigned n_peers;
    uint64_t name, token; /* the sockets are called by the one; the other is for peers alone */
    struct stepaf_toy_registration *registrations;
    uint8_t piece[STEPAF_TOY_PIECE];
};

/* link.c */
bool stepaf_toy_socket(const struct stepaf_toy *toy, struct stepaf_toy_link *link, uint32_t peer);
stepaf_status_t stepaf_toy_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason);
void stepaf_toy_disconnect(struct stepaf_link *link);
unsigned stepaf_toy_post(struct stepaf_post *const *posts, unsigned n);
unsigned stepaf_toy_progress(struct stepaf_transport *transport, unsigned polls);
void stepaf_toy_check_peers(struct stepaf_transport *transport);

#endif
