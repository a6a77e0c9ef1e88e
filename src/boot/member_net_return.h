/* SPDX-License-Identifier: Apache-2.0 */
/* The way back: a process that is to take a lost rank's place, the guest, shows members that it
 * knows the job's secret, says what a member says in a commit, and waits to be admitted. The member
 * that it has chosen, its home, tells the others in their next commit, which decides.
 * consensus/README.md has the course of it. */
#ifndef STEPAF_BOOT_MEMBER_NET_RETURN_H
#define STEPAF_BOOT_MEMBER_NET_RETURN_H

#include "boot/member_net.h"

/* ---- at members ---- */

/* Let guests ask: they know the secret that @a key was made of. */
void stepaf_member_net_let_ask(struct stepaf_member_net *net, const uint8_t *key);
/* What guests are told of a rank: its contact, as stepaf_member_contact_pack writes it, then what
 * is the caller's affair. It is copied, and can be called where the contact says. False: no memory,
 * or there is no contact. */
bool stepaf_member_net_set_card(struct stepaf_member_net *net, int rank, const void *card,
                                size_t bytes);
/* A rank's card as it was set; data is NULL if it never was. */
const struct stepaf_consensus_blob *stepaf_member_net_card(const struct stepaf_member_net *net,
                                                           int rank);
/* What guests are to count on from: the epoch, and how many commits have been entered. */
void stepaf_member_net_set_counts(struct stepaf_member_net *net, uint32_t epoch,
                                  uint32_t n_commits);
enum { STEPAF_MEMBER_NET_ADDRESS_MAX = 1024 };
/* Where this rank can be called, as STEPAF_JOIN has it. */
void stepaf_member_net_address(const struct stepaf_member_net *net,
                               char text_p[STEPAF_MEMBER_NET_ADDRESS_MAX]);
/* Whether a guest asks for the place of @a rank, which is lost or out. */
bool stepaf_member_net_is_wanted(const struct stepaf_member_net *net, int rank);
/* How many have asked this member, or said that they leave, ever. */
uint32_t stepaf_member_net_asked(const struct stepaf_member_net *net);
/* What the guest that wants that place says, if this member is its home, whether the place is free
 * or not; NULL: it is not, or there is none. *id_p tells this guest from others. */
const struct stepaf_consensus_blob *stepaf_member_net_words(const struct stepaf_member_net *net,
                                                            int rank, uint64_t *id_p);
/* By the decision that this rank has just come to, the guest with this number is rank @a rank from
 * now on; other guests that want the place are turned away. False: no memory. */
bool stepaf_member_net_admit(struct stepaf_member_net *net, int rank, uint64_t id, const void *card,
                             size_t bytes);
/* All that this decision admits are: tell them. */
void stepaf_member_net_welcome(struct stepaf_member_net *net);
/* The guest that wants that place, if there is one, is told what it waits for. */
void stepaf_member_net_excuse(struct stepaf_member_net *net, int rank, const char *why);
/* That guest will not be admitted, and why. */
void stepaf_member_net_turn_away(struct stepaf_member_net *net, int rank, uint64_t id,
                                 const char *why);

/* ---- at the guest ---- */

enum stepaf_member_admission {
    STEPAF_MEMBER_WAITS,
    STEPAF_MEMBER_ADMITTED,
    STEPAF_MEMBER_TURNED_AWAY
};

/* This process wants the place of the rank that it has: show members the secret that @a key was
 * made of. False: no memory. */
bool stepaf_member_net_be_guest(struct stepaf_member_net *net, const uint8_t *key);
/* Call members at the places that @a join lists, as host:port, until one has told what guests are
 * told: then there are cards. STEPAF_ERR_TIMEOUT, with what the last call has come to;
 * STEPAF_ERR_SETTING; STEPAF_ERR_BOOT: the secret is another. */
stepaf_status_t stepaf_member_net_look(struct stepaf_member_net *net, const char *join,
                                       int64_t deadline_ns);
/* Ask all members to be admitted, from the next stepaf_member_net_pump on. The words are copied.
 * False: no memory. */
bool stepaf_member_net_ask(struct stepaf_member_net *net, const void *words, size_t bytes);
/* Ask no more: members forget it. */
void stepaf_member_net_withdraw(struct stepaf_member_net *net);
/* What has come of it. Admitted: the consensus has come to the decision that says so, and to its
 * value, and its members are those of before. */
enum stepaf_member_admission stepaf_member_net_admission(const struct stepaf_member_net *net);
/* Why it was turned away, or what it waits for. */
const char *stepaf_member_net_answer(const struct stepaf_member_net *net);
/* By what all members have ended, as their addresses tell; NULL: some may be there. */
const char *stepaf_member_net_members_over(const struct stepaf_member_net *net);
void stepaf_member_net_counts(const struct stepaf_member_net *net, uint32_t *epoch_p,
                              uint32_t *n_commits_p);

#endif
