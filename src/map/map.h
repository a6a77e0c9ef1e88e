/* SPDX-License-Identifier: Apache-2.0 */
/* The map of a job: who is where, and which link goes by which transport. Each rank says its part;
 * world rank 0 puts the parts together. Only job.c knows the context: the rest is pure. */
#ifndef STEPAF_MAP_MAP_H
#define STEPAF_MAP_MAP_H

#include <stdio.h>

#include "base/pack.h"
#include "topo/topo.h"
#include "transport/transport.h"

enum {
    STEPAF_MAP_ALONE = 16,   /* ranks: up to here each has an ID of its own */
    STEPAF_MAP_COLUMNS = 8,  /* of the matrix: up to here cells have names, beyond letters */
    STEPAF_MAP_LETTERS = 62, /* columns of letters in a line of the matrix */
    STEPAF_MAP_REFUSED = 16, /* lines on refused transports */
    STEPAF_MAP_FATES = 16    /* and on ranks that are out, have returned or come later */
};

/* One way to reach a peer: what many links have in common. */
struct stepaf_map_way {
    char name[STEPAF_LINK_NAME];
    char refused[STEPAF_REASON_MAX]; /* better transports, and why not */
};

/* Consecutive peers, by rank within their role, that are reached alike. */
struct stepaf_map_run {
    uint32_t n;
    uint32_t way;   /* index + 1; 0: not linked at all */
    uint64_t moved; /* bytes that the transport has written for each of them */
    uint64_t messages;
};

/* What has become of a rank. */
enum stepaf_map_fate {
    STEPAF_MAP_STAYED,
    STEPAF_MAP_RETURNED, /* other processes have taken its place since */
    STEPAF_MAP_JOINED,   /* it came later than the others */
    STEPAF_MAP_OUT,      /* the epoch goes on without it: the rest of its part is empty */
    STEPAF_MAP_LEFT,     /* the same, and it has left in order */
    STEPAF_MAP_VACANT    /* the same, and nobody has joined as it yet */
};

/* What one rank says. */
struct stepaf_map_part {
    uint8_t role; /* these four are not said but known */
    uint32_t rank;
    uint8_t fate; /* enum stepaf_map_fate */
    uint32_t n_returns;
    stepaf_status_t status; /* of its check of its own links */
    char text[STEPAF_ERROR_TEXT_MAX];
    uint64_t node_id;
    char host[STEPAF_TOPO_HOST_MAX];
    char address[STEPAF_LINK_ADDRESS];
    char gpu[STEPAF_TOPO_NAME_MAX];
    char nic[STEPAF_TOPO_NAME_MAX];
    char cores[128];
    uint32_t n_ways;
    struct stepaf_map_way *ways;
    uint32_t n_runs;
    struct stepaf_map_run *runs; /* over all ranks of the other role */
};

struct stepaf_map {
    uint32_t size;
    struct stepaf_map_part *parts; /* by world rank */
    uint32_t n_of[2];              /* ranks of each role */
    uint32_t *world[2];            /* their world ranks */
    uint32_t epoch;
    bool with_bytes; /* there was traffic to show */
};

/* map.c */
void stepaf_map_part_free(struct stepaf_map_part *part);
/* Add the link to the next peer. False: out of memory. @a way NULL: there is none. */
bool stepaf_map_part_add(struct stepaf_map_part *part, const struct stepaf_map_way *way,
                         uint64_t moved, uint64_t messages);
void stepaf_map_part_pack(const struct stepaf_map_part *part, struct stepaf_pack *pack);
/* Read a part with links to @a n_links peers. STEPAF_ERR_PROTOCOL: it is malformed, *part_p is
 * unchanged. What is to be shown to people is printable afterwards, whatever was said. */
stepaf_status_t stepaf_map_part_read(const void *blob, size_t bytes, uint32_t n_links,
                                     struct stepaf_map_part *part_p);
/* Read only the verdict. */
stepaf_status_t stepaf_map_verdict_read(const void *blob, size_t bytes, stepaf_status_t *status_p,
                                        char text_p[STEPAF_ERROR_TEXT_MAX]);

/* Make a map of @a size parts, all empty, with the roles in @a roles. False: out of memory. */
bool stepaf_map_open(struct stepaf_map *map_p, uint32_t size, const uint8_t *roles);
void stepaf_map_close(struct stepaf_map *map);

/* group.c: an ID is one rank, or in larger jobs all ranks of one node and role. */
struct stepaf_map_group {
    uint8_t role;
    bool is_out; /* those that the epoch goes on without are not together with others */
    uint32_t n;
    uint32_t first; /* world rank */
};
struct stepaf_map_groups {
    uint32_t n;
    uint32_t n_attention; /* these come first */
    uint32_t n_nodes;
    struct stepaf_map_group *list;
    uint32_t *of; /* by world rank */
};
bool stepaf_map_group(const struct stepaf_map *map, struct stepaf_map_groups *groups_p);
void stepaf_map_groups_free(struct stepaf_map_groups *groups);

/* table.c, matrix.c: print for people. False: out of memory. */
void stepaf_map_print_table(const struct stepaf_map *map, const struct stepaf_map_groups *groups,
                            FILE *stream);
bool stepaf_map_print_matrix(const struct stepaf_map *map, const struct stepaf_map_groups *groups,
                             FILE *stream);
/* Whether the epoch goes on without the rank. */
static inline bool stepaf_map_is_out(const struct stepaf_map_part *part)
{
    return part->fate >= STEPAF_MAP_OUT;
}
/* All of it, as one text to be freed; NULL: out of memory. */
char *stepaf_map_text(const struct stepaf_map *map);

struct stepaf_ctx;

/* job.c */
/* GPUs and NICs near the rank; looking for them takes long enough to do it once. */
struct stepaf_map_devices {
    char gpu[STEPAF_TOPO_NAME_MAX];
    char nic[STEPAF_TOPO_NAME_MAX];
};
/* What this rank says; its lock is held. Its links are judged where @a with_bytes. */
void stepaf_map_part_make(struct stepaf_ctx *ctx, bool with_bytes, struct stepaf_map_part *part_p);
/* Collective among members: exchange parts. At the first of them, if @a text_p is not NULL, *text_p
 * is the map. The first rank's verdict that is not good is that of all; after STEPAF_ERR_TRANSPORT
 * there is a map all the same. */
stepaf_status_t stepaf_map_exchange(struct stepaf_ctx *ctx, const struct stepaf_map_part *part,
                                    bool with_bytes, int64_t timeout_us, char **text_p);
/* Collective: at the first of them, print the map where log lines go. Only a failure of the
 * exchange itself is one: a map that cannot be drawn is warned of. */
stepaf_status_t stepaf_map_print(struct stepaf_ctx *ctx, int64_t timeout_us);

#endif
