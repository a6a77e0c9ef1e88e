/* SPDX-License-Identifier: Apache-2.0 */
/* Members that talk to each other, whatever bootstrap has started them: each listens from init on, and calls
 * another when it has something to say. Whoever calls anything here holds the context's lock. */
#ifndef STEPAF_BOOT_TALK_H
#define STEPAF_BOOT_TALK_H

#include "boot/accord/accord.h"
#include "boot/accord/address.h"
#include "settings/settings.h"

enum { STEPAF_TALK_DRAWN_BYTES = 32, STEPAF_TALK_REASON_MAX = 160 };

/* What a rank's hello says of it. */
struct stepaf_talk_card {
    struct stepaf_accord_addresses addresses;
    uint8_t drawn[STEPAF_TALK_DRAWN_BYTES]; /* its part of the job's secret */
};

struct stepaf_talk;

void stepaf_talk_card_pack(const struct stepaf_talk_card *card, struct stepaf_pack *pack);
bool stepaf_talk_card_read(struct stepaf_unpack *unpack, struct stepaf_talk_card *card_p);

/* Listen. NULL: this rank does not, and reason_p says why. */
struct stepaf_talk *stepaf_talk_open(const struct stepaf_env *env, int rank, int size,
                                     struct stepaf_talk_card *card_p,
                                     char reason_p[STEPAF_TALK_REASON_MAX]);
/* All have said where they listen: from now on they can talk. False: no memory. */
bool stepaf_talk_meet(struct stepaf_talk *talk, const struct stepaf_talk_card *cards);
/* Say goodbye to whoever is connected. NULL is ignored. */
void stepaf_talk_close(struct stepaf_talk *talk);

/* Do what can be done without waiting. */
void stepaf_talk_pump(struct stepaf_talk *talk);
/* Something to poll for: readable when there is something to do. */
int stepaf_talk_fd(const struct stepaf_talk *talk);

/* The machine, to look at. */
const struct stepaf_accord *stepaf_talk_accord(const struct stepaf_talk *talk);
/* A rank is lost, as the data plane or the bootstrap says. */
void stepaf_talk_lose(struct stepaf_talk *talk, int rank, const char *why);
/* Why @a rank is lost; "": not known, or it is not. */
const char *stepaf_talk_reason(const struct stepaf_talk *talk, int rank);

/* ---- talk_decide.c: decisions, as accord.h has them ---- */

void stepaf_talk_next(struct stepaf_talk *talk);
bool stepaf_talk_is_called(const struct stepaf_talk *talk);
/* What an exchange of all has brought, as allgather of stepaf_boot_t has it. */
void stepaf_talk_settle(struct stepaf_talk *talk, const void *all, const size_t *offsets);
void stepaf_talk_decide(struct stepaf_talk *talk, const void *own, size_t bytes);
/* The decision in the same form; present_p: by rank, whose words are in it. STEPAF_ERR_NO_MEMORY,
 * STEPAF_ERR_PROTOCOL. */
stepaf_status_t stepaf_talk_decision(struct stepaf_talk *talk, void **all_p, size_t *offsets_p,
                                     uint8_t *present_p);
int stepaf_talk_awaited(const struct stepaf_talk *talk);
void stepaf_talk_forget(struct stepaf_talk *talk);
void stepaf_talk_set_members(struct stepaf_talk *talk, const uint8_t *is_member);

#endif
