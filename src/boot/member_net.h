/* SPDX-License-Identifier: Apache-2.0 */
/* Members that net to each other, whatever bootstrap has started them: each listens from init on,
 * and calls another when it has something to say. Whoever calls anything here holds the context's
 * lock. */
#ifndef STEPAF_BOOT_MEMBER_NET_H
#define STEPAF_BOOT_MEMBER_NET_H

#include "boot/consensus/address.h"
#include "boot/consensus/consensus.h"
#include "settings/settings.h"

enum { STEPAF_MEMBER_NET_NONCE_BYTES = 32, STEPAF_MEMBER_NET_REASON_MAX = 160 };

/* What a rank's hello says of it. */
struct stepaf_member_contact {
    struct stepaf_consensus_addresses addresses;
    uint8_t nonce[STEPAF_MEMBER_NET_NONCE_BYTES]; /* its part of the job's secret */
};

struct stepaf_member_net;

void stepaf_member_contact_pack(const struct stepaf_member_contact *contact,
                                struct stepaf_pack *pack);
bool stepaf_member_contact_read(struct stepaf_unpack *unpack,
                                struct stepaf_member_contact *contact_p);

/* Listen. NULL: this rank does not, and reason_p says why. */
struct stepaf_member_net *stepaf_member_net_open(const struct stepaf_env *env, int rank, int size,
                                                 struct stepaf_member_contact *contact_p,
                                                 char reason_p[STEPAF_MEMBER_NET_REASON_MAX]);
/* All have said where they listen: from now on they can net. False: no memory. */
bool stepaf_member_net_meet(struct stepaf_member_net *net,
                            const struct stepaf_member_contact *contacts);
/* Say goodbye to whoever is connected. NULL is ignored. */
void stepaf_member_net_close(struct stepaf_member_net *net);

/* Do what can be done without waiting. */
void stepaf_member_net_pump(struct stepaf_member_net *net);
/* Something to poll for: readable when there is something to do. */
int stepaf_member_net_fd(const struct stepaf_member_net *net);

/* The machine, to look at. */
const struct stepaf_consensus *stepaf_member_net_consensus(const struct stepaf_member_net *net);
/* A rank is lost, as the data plane or the bootstrap says. */
void stepaf_member_net_lose(struct stepaf_member_net *net, int rank, const char *why);
/* Nobody has had that rank yet. Before anything is decided. */
void stepaf_member_net_vacate(struct stepaf_member_net *net, int rank);
/* Why @a rank is lost; "": not known, or it is not. */
const char *stepaf_member_net_reason(const struct stepaf_member_net *net, int rank);
/* What this rank itself lacks to call that one, in words; "": nothing. */
const char *stepaf_member_net_hindrance(const struct stepaf_member_net *net, int rank);

/* Tell all members that this rank waits for the commit by which it leaves, or that it does so no
 * more. */
void stepaf_member_net_tell_leaving(struct stepaf_member_net *net, bool leaves);
/* Whether @a rank, a member, has said so. */
bool stepaf_member_net_leaves(const struct stepaf_member_net *net, int rank);
/* It is no member any more, since it has left. */
void stepaf_member_net_set_left(struct stepaf_member_net *net, int rank);
bool stepaf_member_net_has_left(const struct stepaf_member_net *net, int rank);

/* ---- member_net_decide.c: decisions, as consensus.h has them ---- */

void stepaf_member_net_next(struct stepaf_member_net *net);
bool stepaf_member_net_is_called(const struct stepaf_member_net *net);
/* What an exchange of all has brought, as allgather of stepaf_boot_t has it. */
void stepaf_member_net_learn(struct stepaf_member_net *net, const void *all, const size_t *offsets);
void stepaf_member_net_decide(struct stepaf_member_net *net, const void *own, size_t bytes);
/* The decision in the same form; present_p: by rank, whose words are in it. STEPAF_ERR_NO_MEMORY,
 * STEPAF_ERR_PROTOCOL. */
stepaf_status_t stepaf_member_net_decision(struct stepaf_member_net *net, void **all_p,
                                           size_t *offsets_p, uint8_t *present_p);
/* Any value that stepaf_consensus_value_make has made, as a decision is given; present_p may be
 * NULL. The errors are the decision's. */
stepaf_status_t stepaf_member_net_deal(const struct stepaf_member_net *net,
                                       const struct stepaf_consensus_blob *value, void **all_p,
                                       size_t *offsets_p, uint8_t *present_p);
int stepaf_member_net_awaited(const struct stepaf_member_net *net);
void stepaf_member_net_forget(struct stepaf_member_net *net);
void stepaf_member_net_set_members(struct stepaf_member_net *net, const uint8_t *is_member);

#endif
