/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers, and exchanges outside of commits, among members that the bootstrap cannot serve: ranks
 * have been lost, for which it would wait in vain, or ranks have returned, which it does not
 * know. */
#ifndef STEPAF_CORE_MEMBERS_GATHER_H
#define STEPAF_CORE_MEMBERS_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/stepaf.h>

struct stepaf_ctx;

/* Each channel has its own gatherings, one after the other, in the same order at all ranks. The
 * first three channels belong to the groups of these numbers, the last one to the world. */
enum { STEPAF_GATHER_BARRIER = STEPAF_GROUP_WORLD, STEPAF_GATHER_MAP = STEPAF_GROUP_FFN + 1 };

/* Return whether the members gather by themselves. All members have the same answer, from one
 * commit to the next. */
bool stepaf_members_gather_is_due(const struct stepaf_ctx *ctx);
/* Wait until all members of the group have called this. If @a words are given, *all_p and offsets_p
 * are as in allgather of stepaf_boot_t, with empty entries for ranks that are no members; otherwise
 * *all_p is NULL. After STEPAF_ERR_TIMEOUT, the same call continues waiting. STEPAF_ERR_PEER_LOST:
 * a member of the group was lost before it called. The lock is not held; meanwhile
 * stepaf_boot_advance makes progress for this rank. */
stepaf_status_t stepaf_members_gather(struct stepaf_ctx *ctx, int channel, const void *words,
                                      size_t bytes, void **all_p, size_t *offsets_p,
                                      int64_t timeout_us);

#endif
