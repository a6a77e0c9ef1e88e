/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers, and exchanges outside of commits, among members of whom the bootstrap does not know
 * some, or would wait for some in vain: ranks have been lost, and others have returned. */
#ifndef STEPAF_CORE_MEMBERS_GATHER_H
#define STEPAF_CORE_MEMBERS_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/stepaf.h>

struct stepaf_ctx;

/* Each channel has its own gatherings, one after the other, in the same order at all ranks. The
 * first three are those of the group with that number, the last is the world's. */
enum { STEPAF_GATHER_BARRIER = STEPAF_GROUP_WORLD, STEPAF_GATHER_MAP = STEPAF_GROUP_FFN + 1 };

/* Whether members must gather this way: the same at all of them, from one commit to the next. */
bool stepaf_members_gather_is_due(const struct stepaf_ctx *ctx);
/* Wait until all members of the group have called this. With words, *all_p and offsets_p are like
 * those of allgather of stepaf_boot_t, and empty for a rank that is no member; without, all_p is
 * NULL. After STEPAF_ERR_TIMEOUT the same call continues to wait. STEPAF_ERR_PEER_LOST: a member of
 * the group was lost before it arrived. The lock is not held; meanwhile stepaf_boot_advance makes
 * progress. */
stepaf_status_t stepaf_members_gather(struct stepaf_ctx *ctx, int channel, const void *words,
                                      size_t bytes, void **all_p, size_t *offsets_p,
                                      int64_t timeout_us);

#endif
