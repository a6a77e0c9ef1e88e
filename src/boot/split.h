/* SPDX-License-Identifier: Apache-2.0 */
/* Who is what: the roles of all ranks from a split string. No input is trusted.
 *
 * In two steps, because a rank knows its split before it knows the others' nodes: parse (syntax,
 * and the map file), then deal. */
#ifndef STEPAF_BOOT_SPLIT_H
#define STEPAF_BOOT_SPLIT_H

#include <stdbool.h>
#include <string.h>

#include <stepaf/types.h>

enum stepaf_split_kind {
    STEPAF_SPLIT_NONE,
    STEPAF_SPLIT_WORLD, /* counts of the job */
    STEPAF_SPLIT_NODES, /* counts of each node */
    STEPAF_SPLIT_MAP
};

/* A split taken apart. */
struct stepaf_split {
    enum stepaf_split_kind kind;
    int attention; /* 0: all that the other side leaves */
    int ffn;       /* the same; never both */
    bool interleave;
    const char *text; /* as it was given; not owned */
    uint8_t *map;     /* role of each rank */
};

/* Where a rank is. */
struct stepaf_split_rank {
    uint64_t node_id;
    const char *host;
};

/* Take @a text apart for a job of @a size ranks.
 *   ""                         no split
 *   "attn=A,ffn=F"             the first A ranks are attention, the next F are FFN; A+F == size
 *   "attn=A", "ffn=F"          the side that is left out takes the rest; attention comes first
 *   "attn=per-node:A,ffn=per-node:F"   the same within each node, in rank order
 *   "...,interleave"           dealt out as evenly as the counts allow, attention first
 *   "map=FILE"                 FILE has one word a line, "attention" (or "attn") or "ffn", rank by
 *                              rank; '#' begins a comment; as many as ranks
 * Order of the words is free. STEPAF_ERR_SPLIT with a sentence that says what is wrong and what the
 * syntax is; *split_p is unchanged then. @a text must stay as long as *split_p. */
stepaf_status_t stepaf_split_parse(const char *text, int size, struct stepaf_split *split_p);

/* Parse a map file, or the text of one. STEPAF_ERR_SPLIT says what is wrong, as above;
 * roles_p[0..size) is unchanged on failure. */
stepaf_status_t stepaf_split_parse_map_file(const char *path, int size, uint8_t *roles_p);
stepaf_status_t stepaf_split_parse_map(const char *text, size_t bytes, int size, uint8_t *roles_p);

/* Write each rank's role to roles_p[0..size). STEPAF_ERR_SPLIT where the counts do not fit the job,
 * or a node, which is then named; roles_p is unchanged then. @a split is of some kind. */
stepaf_status_t stepaf_split_deal(const struct stepaf_split *split,
                                  const struct stepaf_split_rank *ranks, int size,
                                  uint8_t *roles_p);

/* Digest of what the map file says; 0 without one. */
uint64_t stepaf_split_map_digest(const struct stepaf_split *split, int size);

void stepaf_split_free(struct stepaf_split *split);

/* Refuse: say what is wrong, quote the split and give the syntax. */
stepaf_status_t stepaf_split_refuse(const char *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline bool stepaf_split_word_is(const char *word, size_t bytes, const char *expected)
{
    return strlen(expected) == bytes && memcmp(word, expected, bytes) == 0;
}

#endif
