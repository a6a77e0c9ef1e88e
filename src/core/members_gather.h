/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers, and exchanges outside of commits, among members that the bootstrap does not all know,
 * or that it would wait for in vain: ranks have been lost, and others have returned. */
#ifndef STEPAF_CORE_MEMBERS_GATHER_H
#define STEPAF_CORE_MEMBERS_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/stepaf.h>

struct stepaf_ctx;

/* Each has its own gatherings, one after the other, in the same order at all ranks. The first three
 * are of the group of that number, the last one of the world. */
enum { STEPAF_GATHER_BARRIER = STEPAF_GROUP_WORLD, STEPAF_GATHER_MAP = STEPAF_GROUP_FFN + 1 };

/* Whether it is the members' affair: the same at all of them, from one commit to the next. */
bool stepaf_members_gather_is_due(const struct stepaf_ctx *ctx);
/* Wait until all members of the group have called this. With words, *all_p and offsets_p are as
 * allgather of stepaf_boot_t has them, and empty for who is no member; all_p is NULL without. After
 * STEPAF_ERR_TIMEOUT the same call goes on waiting. STEPAF_ERR_PEER_LOST: a member of the group was
 * lost before it came. The lock is not held; meanwhile the rank goes on by stepaf_boot_advance. */
stepaf_status_t stepaf_members_gather(struct stepaf_ctx *ctx, int channel, const void *words,
                                      size_t bytes, void **all_p, size_t *offsets_p,
                                      int64_t timeout_us);

#endif
