/* SPDX-License-Identifier: Apache-2.0 */
/* Return of a process to a job. A process that is to take a lost rank's place, the guest, proves to
 * members that it knows the job's secret, says what a member says in a commit, and waits to be
 * admitted. The member that the guest has chosen, its home, tells the other members in their next
 * commit, which decides. consensus/README.md describes the sequence. */
#ifndef STEPAF_BOOT_MEMBER_NET_RETURN_H
#define STEPAF_BOOT_MEMBER_NET_RETURN_H

#include "boot/member_net.h"

/* ---- at members ---- */

/* Let guests ask: they know the secret from which @a key was made. */
void stepaf_member_net_let_ask(struct stepaf_member_net *net, const uint8_t *key);
/* Set what guests are told of a rank: its contact, as stepaf_member_contact_pack writes it,
 * followed by data for the caller's use. The card is copied, and the rank can be called at the
 * addresses in the contact. Returns false if there is no memory or no contact. */
bool stepaf_member_net_set_card(struct stepaf_member_net *net, int rank, const void *card,
                                size_t bytes);
/* Return a rank's card as it was set; data is NULL if it never was. */
const struct stepaf_consensus_blob *stepaf_member_net_card(const struct stepaf_member_net *net,
                                                           int rank);
/* Set from where guests count on: the epoch, and the number of commits that have been entered. */
void stepaf_member_net_set_counts(struct stepaf_member_net *net, uint32_t epoch,
                                  uint32_t n_commits);
enum { STEPAF_MEMBER_NET_ADDRESS_MAX = 1024 };
/* Write the addresses at which this rank can be called, in the form of STEPAF_JOIN. */
void stepaf_member_net_address(const struct stepaf_member_net *net,
                               char text_p[STEPAF_MEMBER_NET_ADDRESS_MAX]);
/* Return whether a guest asks for the place of @a rank, which is lost or out. */
bool stepaf_member_net_is_wanted(const struct stepaf_member_net *net, int rank);
/* Return how many guests have asked this member, and ranks have said that they leave, ever. */
uint32_t stepaf_member_net_asked(const struct stepaf_member_net *net);
/* Return the words of the guest that wants the place of @a rank, if this member is its home,
 * whether the place is free or not. Returns NULL if this member is not the home, or there is no
 * guest. *id_p distinguishes this guest from others. */
const struct stepaf_consensus_blob *stepaf_member_net_words(const struct stepaf_member_net *net,
                                                            int rank, uint64_t *id_p);
/* Admit the guest with this @a id as rank @a rank, by the decision that this rank has just reached;
 * other guests that want the place are rejected. Returns false if there is no memory. */
bool stepaf_member_net_admit(struct stepaf_member_net *net, int rank, uint64_t id, const void *card,
                             size_t bytes);
/* Tell the guests that this decision admits, once all of them are admitted. */
void stepaf_member_net_welcome(struct stepaf_member_net *net);
/* Tell the guest that wants the place, if there is one, what it waits for. */
void stepaf_member_net_excuse(struct stepaf_member_net *net, int rank, const char *why);
/* Tell the guest that it will not be admitted, and why: status, sentence and the other rank that it
 * is about. */
void stepaf_member_net_turn_away(struct stepaf_member_net *net, int rank, uint64_t id,
                                 const stepaf_error_t *why);

/* ---- at the guest ---- */

enum stepaf_member_admission {
    STEPAF_MEMBER_WAITS,
    STEPAF_MEMBER_ADMITTED,
    STEPAF_MEMBER_TURNED_AWAY
};

/* Make this process a guest that wants the place of its rank: it proves to members that it knows
 * the secret from which @a key was made. Returns false if there is no memory. */
bool stepaf_member_net_be_guest(struct stepaf_member_net *net, const uint8_t *key);
/* Call members at the places that @a join lists, as host:port, until one has told what guests are
 * told: then there are cards. Returns STEPAF_ERR_TIMEOUT with the result of the last call;
 * STEPAF_ERR_SETTING; STEPAF_ERR_BOOT if the secret is another. */
stepaf_status_t stepaf_member_net_look(struct stepaf_member_net *net, const char *join,
                                       int64_t deadline_ns);
/* Ask all members to be admitted, from the next stepaf_member_net_pump on. The words are copied.
 * Returns false if there is no memory. */
bool stepaf_member_net_ask(struct stepaf_member_net *net, const void *words, size_t bytes);
/* Stop asking: members forget the guest. */
void stepaf_member_net_withdraw(struct stepaf_member_net *net);
/* Return the state of the request. Admitted: the consensus has reached the decision that admits
 * this process, and has its value; its members are those from before that decision. */
enum stepaf_member_admission stepaf_member_net_admission(const struct stepaf_member_net *net);
/* Return why this process was rejected, or what it waits for. */
const char *stepaf_member_net_answer(const struct stepaf_member_net *net);
/* Return the status with which the members' check has rejected this process, whose answer is then a
 * whole sentence; STEPAF_ERR_BOOT: it was rejected for another reason. *peer_p is the world rank
 * that it does not fit with; -1: none. */
stepaf_status_t stepaf_member_net_refusal(const struct stepaf_member_net *net, int *peer_p);
/* Return the failure of a call that shows that all members have ended, as their addresses tell;
 * NULL: some may be there. */
const char *stepaf_member_net_members_over(const struct stepaf_member_net *net);
void stepaf_member_net_counts(const struct stepaf_member_net *net, uint32_t *epoch_p,
                              uint32_t *n_commits_p);

#endif
