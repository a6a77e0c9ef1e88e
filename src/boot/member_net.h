/* SPDX-License-Identifier: Apache-2.0 */
/* The connections between members, whatever bootstrap has started them: each member listens from
 * init on, and calls another when it has something to say. The caller of every function here holds
 * the context's lock. */
#ifndef STEPAF_BOOT_MEMBER_NET_H
#define STEPAF_BOOT_MEMBER_NET_H

#include "boot/consensus/address.h"
#include "boot/consensus/consensus.h"
#include "settings/settings.h"

enum { STEPAF_MEMBER_NET_NONCE_BYTES = 32, STEPAF_MEMBER_NET_REASON_MAX = 160 };

/* The contact data in a rank's hello. */
struct stepaf_member_contact {
    struct stepaf_consensus_addresses addresses;
    uint8_t nonce[STEPAF_MEMBER_NET_NONCE_BYTES]; /* the rank's part of the job's secret */
};

struct stepaf_member_net;

void stepaf_member_contact_pack(const struct stepaf_member_contact *contact,
                                struct stepaf_pack *pack);
bool stepaf_member_contact_read(struct stepaf_unpack *unpack,
                                struct stepaf_member_contact *contact_p);

/* Listen. Returns NULL if this rank does not listen; reason_p then says why. */
struct stepaf_member_net *stepaf_member_net_open(const struct stepaf_env *env, int rank, int size,
                                                 struct stepaf_member_contact *contact_p,
                                                 char reason_p[STEPAF_MEMBER_NET_REASON_MAX]);
/* Take the contacts, once all ranks have said where they listen: from now on they can connect.
 * Returns false if there is no memory. */
bool stepaf_member_net_meet(struct stepaf_member_net *net,
                            const struct stepaf_member_contact *contacts);
/* Say goodbye to all connected ranks. NULL is ignored. */
void stepaf_member_net_close(struct stepaf_member_net *net);

/* Do what can be done without waiting. */
void stepaf_member_net_pump(struct stepaf_member_net *net);
/* Return a file descriptor to poll: readable when there is something to do. */
int stepaf_member_net_fd(const struct stepaf_member_net *net);

/* Return the consensus machine, for reading. */
const struct stepaf_consensus *stepaf_member_net_consensus(const struct stepaf_member_net *net);
/* Mark @a rank as lost, as the data plane or the bootstrap says. */
void stepaf_member_net_lose(struct stepaf_member_net *net, int rank, const char *why);
/* Mark @a rank as one that no process has had yet. Call before anything is decided. */
void stepaf_member_net_vacate(struct stepaf_member_net *net, int rank);
/* Return why @a rank is lost; "": not known, or it is not lost. */
const char *stepaf_member_net_reason(const struct stepaf_member_net *net, int rank);
/* Return what this rank itself lacks to call @a rank, as text; "": nothing. */
const char *stepaf_member_net_hindrance(const struct stepaf_member_net *net, int rank);

/* Tell all members that this rank waits for the commit by which it leaves, or no longer does. */
void stepaf_member_net_tell_leaving(struct stepaf_member_net *net, bool leaves);
/* Return whether @a rank, a member, has said that it leaves. */
bool stepaf_member_net_leaves(const struct stepaf_member_net *net, int rank);
/* Mark @a rank as no longer a member, since it has left. */
void stepaf_member_net_set_left(struct stepaf_member_net *net, int rank);
bool stepaf_member_net_has_left(const struct stepaf_member_net *net, int rank);

/* ---- member_net_decide.c: decisions, as in consensus.h ---- */

void stepaf_member_net_next(struct stepaf_member_net *net);
bool stepaf_member_net_is_called(const struct stepaf_member_net *net);
/* Take the result of an exchange of all ranks, in the form that allgather of stepaf_boot_t
 * returns. */
void stepaf_member_net_learn(struct stepaf_member_net *net, const void *all, const size_t *offsets);
void stepaf_member_net_decide(struct stepaf_member_net *net, const void *own, size_t bytes);
/* Return the decision in the same form; present_p: by rank, whether the decision has the rank's
 * words. Returns STEPAF_ERR_NO_MEMORY or STEPAF_ERR_PROTOCOL on failure. */
stepaf_status_t stepaf_member_net_decision(struct stepaf_member_net *net, void **all_p,
                                           size_t *offsets_p, uint8_t *present_p);
/* Return any value made by stepaf_consensus_value_make in the form of a decision; present_p may be
 * NULL. The errors are those of stepaf_member_net_decision. */
stepaf_status_t stepaf_member_net_deal(const struct stepaf_member_net *net,
                                       const struct stepaf_consensus_blob *value, void **all_p,
                                       size_t *offsets_p, uint8_t *present_p);
int stepaf_member_net_awaited(const struct stepaf_member_net *net);
bool stepaf_member_net_is_silent(const struct stepaf_member_net *net, int rank);
void stepaf_member_net_forget(struct stepaf_member_net *net);
/* Set which ranks the commit that is in progress has admitted, as stepaf_consensus_set_new does. */
void stepaf_member_net_set_new(struct stepaf_member_net *net, const uint8_t *is_new);
void stepaf_member_net_set_members(struct stepaf_member_net *net, const uint8_t *is_member);

#endif
