/* SPDX-License-Identifier: Apache-2.0 */
/* The map of a job: where each rank is, and which transport each link uses. Each rank makes its
 * part; world rank 0 combines the parts. Only job.c knows the context: the rest is pure. */
#ifndef STEPAF_MAP_MAP_H
#define STEPAF_MAP_MAP_H

#include <stdio.h>

#include "base/pack.h"
#include "topo/topo.h"
#include "transport/transport.h"

enum {
    STEPAF_MAP_ALONE = 16, /* ranks: up to this number each has its own ID */
    /* of the matrix: up to this number cells have names, beyond it letters */
    STEPAF_MAP_COLUMNS = 8,
    STEPAF_MAP_LETTERS = 62, /* letter columns in a line of the matrix */
    STEPAF_MAP_REFUSED = 16, /* lines on refused transports */
    STEPAF_MAP_FATES = 16    /* lines on ranks that are out, have returned or joined later */
};

/* One way to reach a peer, shared by many links. */
struct stepaf_map_way {
    char name[STEPAF_LINK_NAME];
    char refused[STEPAF_REASON_MAX]; /* better transports, each with the reason against it */
};

/* A run of consecutive peers, by rank within their role, that are reached in the same way. */
struct stepaf_map_run {
    uint32_t n;
    uint32_t way;   /* index + 1; 0: not linked */
    uint64_t moved; /* bytes that the transport has written for each of the peers */
    uint64_t messages;
};

/* What has become of a rank. */
enum stepaf_map_fate {
    STEPAF_MAP_STAYED,
    STEPAF_MAP_RETURNED, /* other processes have taken its place since */
    STEPAF_MAP_JOINED,   /* started later than the others */
    STEPAF_MAP_OUT,      /* the epoch continues without it: the rest of its part is empty */
    STEPAF_MAP_LEFT,     /* the same; the rank has left in an orderly way */
    STEPAF_MAP_VACANT    /* the same; nobody has joined as this rank yet */
};

/* The part of one rank. */
struct stepaf_map_part {
    uint8_t role; /* role to n_returns are known, not transferred */
    uint32_t rank;
    uint8_t fate; /* enum stepaf_map_fate */
    uint32_t n_returns;
    stepaf_status_t status; /* of the rank's check of its own links */
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
/* Add the link to the next peer. Return false if out of memory. @a way: NULL: no link. */
bool stepaf_map_part_add(struct stepaf_map_part *part, const struct stepaf_map_way *way,
                         uint64_t moved, uint64_t messages);
void stepaf_map_part_pack(const struct stepaf_map_part *part, struct stepaf_pack *pack);
/* Read a part with links to @a n_links peers. STEPAF_ERR_PROTOCOL: malformed; *part_p is unchanged.
 * Text that is shown to people is printable afterwards, whatever was received. */
stepaf_status_t stepaf_map_part_read(const void *blob, size_t bytes, uint32_t n_links,
                                     struct stepaf_map_part *part_p);
/* Read only the verdict. */
stepaf_status_t stepaf_map_verdict_read(const void *blob, size_t bytes, stepaf_status_t *status_p,
                                        char text_p[STEPAF_ERROR_TEXT_MAX]);

/* Make a map of @a size empty parts, with the roles in @a roles. Return false if out of memory. */
bool stepaf_map_open(struct stepaf_map *map_p, uint32_t size, const uint8_t *roles);
void stepaf_map_close(struct stepaf_map *map);

/* group.c: an ID stands for one rank, or in larger jobs for all ranks of one node and role. */
struct stepaf_map_group {
    uint8_t role;
    bool is_out; /* ranks that the epoch continues without have groups of their own */
    uint32_t n;
    uint32_t first; /* world rank */
};
struct stepaf_map_groups {
    uint32_t n;
    uint32_t n_attention; /* groups of attention ranks, which come first */
    uint32_t n_nodes;
    struct stepaf_map_group *list;
    uint32_t *of; /* group index by world rank */
};
bool stepaf_map_group(const struct stepaf_map *map, struct stepaf_map_groups *groups_p);
void stepaf_map_groups_free(struct stepaf_map_groups *groups);

/* table.c, matrix.c: print for people. Return false if out of memory. */
void stepaf_map_print_table(const struct stepaf_map *map, const struct stepaf_map_groups *groups,
                            FILE *stream);
bool stepaf_map_print_matrix(const struct stepaf_map *map, const struct stepaf_map_groups *groups,
                             FILE *stream);
/* Return whether the epoch continues without the rank. */
static inline bool stepaf_map_is_out(const struct stepaf_map_part *part)
{
    return part->fate >= STEPAF_MAP_OUT;
}
/* Return the whole map as one text, to be freed by the caller; NULL: out of memory. */
char *stepaf_map_text(const struct stepaf_map *map);

struct stepaf_ctx;

/* job.c */
/* GPUs and NICs near the rank. The search is slow and is done once. */
struct stepaf_map_devices {
    char gpu[STEPAF_TOPO_NAME_MAX];
    char nic[STEPAF_TOPO_NAME_MAX];
};
/* Make this rank's part; the context's lock is held. If @a with_bytes, its links are judged. */
void stepaf_map_part_make(struct stepaf_ctx *ctx, bool with_bytes, struct stepaf_map_part *part_p);
/* Exchange parts; collective among members. At the first member, if @a text_p is not NULL, *text_p
 * is the map. The first verdict that is not OK, by rank, is that of all ranks; after
 * STEPAF_ERR_TRANSPORT there is a map nevertheless. */
stepaf_status_t stepaf_map_exchange(struct stepaf_ctx *ctx, const struct stepaf_map_part *part,
                                    bool with_bytes, int64_t timeout_us, char **text_p);
/* Print the map at the first member where log lines go; collective. Fails only if the exchange
 * itself fails: a map that cannot be drawn is logged as a warning. */
stepaf_status_t stepaf_map_print(struct stepaf_ctx *ctx, int64_t timeout_us);

#endif
