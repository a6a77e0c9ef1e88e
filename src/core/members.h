/* SPDX-License-Identifier: Apache-2.0 */
/* The members of an epoch, and exchanges among them. While no rank is lost, exchanges use the
 * bootstrap; from the first loss on, they use the members' own connections (boot/consensus). */
#ifndef STEPAF_CORE_MEMBERS_H
#define STEPAF_CORE_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/stepaf.h>

struct stepaf_ctx;

/* Make an exchange of a commit, with the semantics of allgather in stepaf_boot_t. A rank that does
 * not take part has an empty entry in *all_p and 0 in ctx->job.members.present, which is the same
 * at all ranks whose call succeeds. STEPAF_ERR_PEER_LOST: too few are left, or the others have
 * declared this rank lost. */
stepaf_status_t stepaf_members_exchange(struct stepaf_ctx *ctx, const void *data, size_t bytes,
                                        void **all_p, size_t *offsets_p, int64_t timeout_us);
/* Take in what other members say, and which ranks are lost. Return whether they want the current
 * exchange to be made among the members. */
bool stepaf_members_call(struct stepaf_ctx *ctx);

/* Return whether a rank is a member and sent nothing in the last exchange: the rank is lost. */
bool stepaf_members_lacks(const struct stepaf_ctx *ctx, int world_rank);
/* Return the first such rank; -1: none. */
int stepaf_members_first_lacking(const struct stepaf_ctx *ctx);
/* Return the reason for the loss as text. */
const char *stepaf_members_why(const struct stepaf_ctx *ctx, int world_rank);
/* Let the epoch continue with the ranks of the last exchange. Stops what other ranks may still
 * write. */
void stepaf_members_adopt(struct stepaf_ctx *ctx);
/* Note that all peers took part in the last exchange. So did all members, unless there are
 * lanes. */
void stepaf_members_settled(struct stepaf_ctx *ctx);

/* Return what is now known of a rank. */
stepaf_member_state_t stepaf_members_state(const struct stepaf_ctx *ctx, int world_rank);
/* Return how many processes have taken the place of a rank's first process. */
uint32_t stepaf_members_n_returns(const struct stepaf_ctx *ctx, uint32_t world_rank);
/* Call the callback if it has news to report. The lock is not held. */
void stepaf_members_dispatch(struct stepaf_ctx *ctx);
/* Return whether this thread is in that callback. */
bool stepaf_members_in_callback(const struct stepaf_ctx *ctx);

#endif
