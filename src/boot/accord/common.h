/* SPDX-License-Identifier: Apache-2.0 */
/* What both parts of the machine need. */
#ifndef STEPAF_BOOT_ACCORD_COMMON_H
#define STEPAF_BOOT_ACCORD_COMMON_H

#include "boot/accord/accord.h"

/* Whether the rank is a member, and not lost. */
static inline bool stepaf_accord_is_there(const struct stepaf_accord *accord, int rank)
{
    return accord->is_member[rank] && !accord->lost[rank];
}

/* The first that is there: who is to lead. */
int stepaf_accord_leader(const struct stepaf_accord *accord);

void stepaf_accord_drop(struct stepaf_accord_blob *blob);
/* Keep a copy in place of what was there. False: no memory, and the decision has failed. */
bool stepaf_accord_keep(struct stepaf_accord *accord, struct stepaf_accord_blob *blob,
                        const void *data, size_t bytes);

/* A message as this rank begins it. */
struct stepaf_accord_message stepaf_accord_begin(const struct stepaf_accord *accord,
                                                 enum stepaf_accord_kind kind, uint32_t ballot);
/* Say it to all that are there. */
void stepaf_accord_say_all(struct stepaf_accord *accord,
                           const struct stepaf_accord_message *message);
/* The decision @a number, this one or the one before, to one who has not accepted it; @a to -1: to all. */
void stepaf_accord_tell(struct stepaf_accord *accord, int to, uint32_t number);

#endif
