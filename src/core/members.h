/* SPDX-License-Identifier: Apache-2.0 */
/* The members of an epoch, and exchanges among them. As long as no member is lost, exchanges use
 * the bootstrap; from the first loss on connections of the members' own (boot/consensus). */
#ifndef STEPAF_CORE_MEMBERS_H
#define STEPAF_CORE_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/stepaf.h>

struct stepaf_ctx;

/* An exchange in a commit, like allgather of stepaf_boot_t. *all_p has nothing of a rank that is
 * absent, and ctx->job.members.present says so; it is the same at all ranks that complete the
 * exchange. STEPAF_ERR_PEER_LOST: too few are left, or the others have declared this rank lost. */
stepaf_status_t stepaf_members_exchange(struct stepaf_ctx *ctx, const void *data, size_t bytes,
                                        void **all_p, size_t *offsets_p, int64_t timeout_us);
/* Take in what other members say, and who is lost. Return whether they want the exchange in
 * progress to be made among themselves. */
bool stepaf_members_call(struct stepaf_ctx *ctx);

/* Whether a rank is lost: it is a member, and the last exchange had nothing of it. */
bool stepaf_members_lacks(const struct stepaf_ctx *ctx, int world_rank);
/* The first such rank; -1: none. */
int stepaf_members_first_lacking(const struct stepaf_ctx *ctx);
/* Why a rank is lost, as text. */
const char *stepaf_members_why(const struct stepaf_ctx *ctx, int world_rank);
/* The epoch continues with the ranks that were in the last exchange: stop what others may still
 * write. */
void stepaf_members_adopt(struct stepaf_ctx *ctx);
/* All peers have reached the last exchange: so have all members, unless there are lanes. */
void stepaf_members_settled(struct stepaf_ctx *ctx);

/* What is known of a rank now. */
stepaf_member_state_t stepaf_members_state(const struct stepaf_ctx *ctx, int world_rank);
/* Call the callback, if there is news for it. The lock is not held. */
void stepaf_members_dispatch(struct stepaf_ctx *ctx);
/* Whether this thread is in that call. */
bool stepaf_members_in_callback(const struct stepaf_ctx *ctx);

#endif
