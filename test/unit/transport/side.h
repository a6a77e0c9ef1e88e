/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a transport, with a host that writes down what it is told. Several ends of one process
 * can be joined. */
#ifndef STEPAF_TEST_SIDE_H
#define STEPAF_TEST_SIDE_H

#include "transport/shm/shm.h"

enum { SIDE_PEERS = 32, SIDE_REGIONS = 4, SIDE_MESSAGES = 4096 };

/* Allocations of settings, one of which is given: each one that is a string takes its own. */
enum {
#define STR(...) +1
    SIDE_OF_SETTINGS = 1
#include "settings/all.def"
};

struct side {
    struct stepaf_upcalls up; /* first */
    struct stepaf_env env;
    struct stepaf_topo topo;
    struct stepaf_transport *transport;
    struct stepaf_link *links[SIDE_PEERS];
    struct stepaf_mem regions[SIDE_REGIONS];
    unsigned n_regions;
    uint8_t *bounce; /* where what is for its GPU memory goes, for who has not registered that */
    unsigned n_messages;
    struct stepaf_msg messages[SIDE_MESSAGES]; /* as they came, of all links */
    unsigned n_by_imm;                         /* of them */
    unsigned n_lost;
    char lost_reason[STEPAF_REASON_MAX];
};

/* What all sides opened next have: transport, who dials, settings. */
extern const struct stepaf_transport_ops *side_ops; /* shared memory at first */
extern bool side_initiates;
extern const char *side_cma;
extern const char *side_slots;
extern const char *side_gpu;             /* its PCI address; NULL at first: there is none */
extern const char *const *side_settings; /* name, value, ..., NULL; go before all else */

/* Give the transport's own status; nothing is to be closed after a failure. */
stepaf_status_t side_try_open(struct side *side, unsigned n_peers);
void side_open(struct side *side, unsigned n_peers);
void side_close(struct side *side);

/* Connect @a from to @a to, which is its peer @a peer and knows it by @a slot; NULL @a pack: what
 * @a to announces. Return NULL, or why it could not be done. */
const char *side_connect(struct side *from, uint32_t peer, struct side *to, uint32_t slot,
                         uint32_t pid, const struct stepaf_pack *pack);
/* Both ways, as peer 0 of each other. */
void side_join(struct side *one, struct side *other);

/* Give @a side memory that peers may write to: shareable, or pages of this process. Who makes GPU
 * memory of it ends that. */
struct stepaf_mem *side_memory(struct side *side, size_t bytes, bool shareable);
/* Make it writable from @a from's link @a peer. */
struct stepaf_rmem *side_import(struct side *from, uint32_t peer, struct side *to,
                                const struct stepaf_mem *region);

/* Post a message alone. */
enum stepaf_post_state side_say(struct side *from, uint32_t peer, uint32_t seq);
/* Take in what is there. */
unsigned side_progress(struct side *side);

/* End the program if the fixture itself fails. */
void side_must(bool good, const char *what);

#endif
