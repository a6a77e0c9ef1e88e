/* SPDX-License-Identifier: Apache-2.0 */
/* The split: the roles of all ranks from a split string. No input is trusted.
 *
 * There are two steps, because a rank knows its split before it knows the nodes of the other ranks:
 * parse (syntax, and the map file), then deal. */
#ifndef STEPAF_BOOT_SPLIT_H
#define STEPAF_BOOT_SPLIT_H

#include <stdbool.h>
#include <string.h>

#include <stepaf/types.h>

enum stepaf_split_kind {
    STEPAF_SPLIT_NONE,
    STEPAF_SPLIT_WORLD, /* counts for the job */
    STEPAF_SPLIT_NODES, /* counts for each node */
    STEPAF_SPLIT_MAP
};

/* A parsed split. */
struct stepaf_split {
    enum stepaf_split_kind kind;
    int attention; /* 0: all ranks that FFN leaves */
    int ffn;       /* 0: all ranks that attention leaves; never both 0 */
    bool interleave;
    const char *text; /* as given; not owned */
    uint8_t *map;     /* role of each rank */
};

/* The location of a rank. */
struct stepaf_split_rank {
    uint64_t node_id;
    const char *host;
};

/* Parse @a text for a job of @a size ranks.
 *   ""                         no split
 *   "attn=A,ffn=F"             the first A ranks are attention, the next F are FFN; A+F == size
 *   "attn=A", "ffn=F"          the side that is left out takes the rest; attention comes first
 *   "attn=per-node:A,ffn=per-node:F"   the same within each node, in rank order
 *   "...,interleave"           dealt as evenly as the counts allow, attention first
 *   "map=FILE"                 FILE has one word a line, "attention" (or "attn") or "ffn", rank by
 *                              rank; '#' begins a comment; as many words as ranks
 * The order of the words is free. Returns STEPAF_ERR_SPLIT with a sentence that says what is wrong
 * and what the syntax is; *split_p is then unchanged. @a text must stay valid as long as
 * *split_p. */
stepaf_status_t stepaf_split_parse(const char *text, int size, struct stepaf_split *split_p);

/* Parse a map file, or the text of one. Returns STEPAF_ERR_SPLIT with what is wrong, as
 * stepaf_split_parse does; roles_p[0..size) is unchanged on failure. */
stepaf_status_t stepaf_split_parse_map_file(const char *path, int size, uint8_t *roles_p);
stepaf_status_t stepaf_split_parse_map(const char *text, size_t bytes, int size, uint8_t *roles_p);

/* Write each rank's role to roles_p[0..size). Returns STEPAF_ERR_SPLIT if the counts do not fit the
 * job, or a node, which is then named; roles_p is then unchanged. The kind of @a split is not
 * STEPAF_SPLIT_NONE. */
stepaf_status_t stepaf_split_deal(const struct stepaf_split *split,
                                  const struct stepaf_split_rank *ranks, int size,
                                  uint8_t *roles_p);

/* Return a digest of the roles in the map file; 0 without one. */
uint64_t stepaf_split_map_digest(const struct stepaf_split *split, int size);

void stepaf_split_free(struct stepaf_split *split);

/* Return the error: say what is wrong, quote the split and give the syntax. */
stepaf_status_t stepaf_split_refuse(const char *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline bool stepaf_split_word_is(const char *word, size_t bytes, const char *expected)
{
    return strlen(expected) == bytes && memcmp(word, expected, bytes) == 0;
}

#endif
