/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of the RDMA transport on made-up devices, with a host that writes down what it is told. */
#ifndef STEPAF_TEST_VERBS_SIDE_H
#define STEPAF_TEST_VERBS_SIDE_H

#include "transport/verbs/verbs.h"
#include "verbs_device.h"

enum { VSIDE_PEERS = 4, VSIDE_REGIONS = 4, VSIDE_MESSAGES = 8192 };

struct vside {
    struct stepaf_upcalls up; /* first */
    struct stepaf_env env;
    struct stepaf_topo topo;
    struct stepaf_transport *transport;
    struct stepaf_link *links[VSIDE_PEERS];
    struct stepaf_mem regions[VSIDE_REGIONS];
    unsigned n_regions;
    unsigned n_messages;
    struct stepaf_msg messages[VSIDE_MESSAGES];
    unsigned n_by_imm;
    uint32_t last_imm;
    void (*taken)(struct vside *side, const struct stepaf_msg *msg); /* NULL: just noted */
    bool senseless; /* the host makes nothing of 32 bits */
    unsigned n_lost;
    char lost_reason[STEPAF_REASON_MAX];
};

/* The settings of sides to come: NAME=VALUE words with blanks between, without STEPAF_. */
extern const char *vside_settings;

/* PCI address of their GPU; NULL: none. */
extern const char *vside_gpu;

/* Whether they are those who connect. */
extern bool vside_initiates;

/* Open, and return the status; on failure there is nothing to close. */
stepaf_status_t vside_try(struct vside *side, unsigned n_peers);
void vside_open(struct vside *side, unsigned n_peers);
void vside_close(struct vside *side);
/* What @a side announces; free its data. */
struct stepaf_pack vside_pack(const struct vside *side);
/* Connect @a from to what @a to announces, or to @a pack. NULL, or why it could not be done. */
const char *vside_connect(struct vside *from, uint32_t peer, struct vside *to, uint32_t slot,
                          const struct stepaf_pack *pack);
/* Both ways, as peer 0 of each other. */
void vside_join(struct vside *one, struct vside *other);
/* Memory that peers may write to. */
struct stepaf_mem *vside_memory(struct vside *side, size_t bytes);
struct stepaf_rmem *vside_import(struct vside *from, uint32_t peer, struct vside *to,
                                 const struct stepaf_mem *region);
/* A post of @a n writes of @a bytes bytes each, one behind the other, of region 0 into @a rmem. */
struct stepaf_post vside_post(struct vside *from, uint32_t peer, struct stepaf_xfer *xfers,
                              unsigned n, uint32_t bytes, const struct stepaf_rmem *rmem);
/* Send it; return its state. */
enum stepaf_post_state vside_send(struct stepaf_post *post);
unsigned vside_progress(struct vside *side);
struct stepaf_verbs_link *vside_link(const struct vside *side, uint32_t peer);

#endif
