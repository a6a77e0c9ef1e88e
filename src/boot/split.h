/* SPDX-License-Identifier: Apache-2.0 */
/* Who is what: the roles of all ranks from a split string. No input is trusted. */
#ifndef STEPAF_BOOT_SPLIT_H
#define STEPAF_BOOT_SPLIT_H

#include <stepaf/types.h>

/* Parse @a split for a job of @a size ranks and write each one's role to roles_p[0..size).
 *   "attn=A,ffn=F"             the first A ranks are attention, the next F are FFN; A+F == size
 *   "attn=A,ffn=F,interleave"  dealt out as evenly as the counts allow, attention first
 *   "map=FILE"                 FILE has one word a line, "attention" (or "attn") or "ffn", rank by
 *                              rank; '#' begins a comment; as many as ranks
 * Order of attn= and ffn= is free. STEPAF_ERR_SPLIT with a sentence that says what is wrong and
 * what the syntax is; roles_p is unchanged then. */
stepaf_status_t stepaf_split_parse(const char *split, int size, uint8_t *roles_p);

/* The same for a map file, and for the text of one. */
stepaf_status_t stepaf_split_parse_map_file(const char *path, int size, uint8_t *roles_p);
stepaf_status_t stepaf_split_parse_map(const char *text, size_t bytes, int size, uint8_t *roles_p);

#endif
