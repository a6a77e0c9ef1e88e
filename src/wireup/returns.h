/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that take lost ranks' places. In its advert each member says whom it can take back,
 * and, as a guest's home, what the guest says: its hello and its advert. So the check of the guest
 * has the same outcome everywhere, by the one exchange that there is anyway, and nobody waits for a
 * process that is no member. */
#ifndef STEPAF_WIREUP_RETURNS_H
#define STEPAF_WIREUP_RETURNS_H

#include "boot/boot_return.h"
#include "wireup/advert.h"
#include "wireup/hello.h"

/* Judge all adverts, as stepaf_adverts_check does, with those guests whom all can take back, and
 * want to: their adverts are put in the places of the lost ranks', which ctx->job.members.returned
 * says. A guest that does not fit is turned away, and is no reason to fail. */
stepaf_status_t stepaf_returns_check(struct stepaf_ctx *ctx, struct stepaf_advert *adverts);
/* Where all ranks are, as the members that have admitted this guest tell: it has looked some time
 * ago, and others may have returned since. Before the adverts are read. */
void stepaf_returns_take_facts(struct stepaf_ctx *ctx);
/* They are members from now on, and told so, also where it fails: the exchange of all that follows
 * has this rank tell its failure. */
stepaf_status_t stepaf_returns_adopt(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts);

/* A guest's init: have a member tell who is who, and what each has said in init; this process's
 * hello is @a own, and
 * @a said is the role that it says itself. roles_p: by world rank. As the exchange of all brings
 *   it. */
stepaf_status_t stepaf_return_look(struct stepaf_ctx *ctx, const struct stepaf_boot_return *returns,
                                   stepaf_role_t said, const struct stepaf_member_contact *contact,
                                   const struct stepaf_pack *own, void **all_p, size_t *offsets_p,
                                   uint8_t *roles_p, int64_t timeout_us);

/* The first exchange of a guest's first commit: ask until the members admit this process, and take
 * what they have exchanged, as stepaf_members_exchange has it. STEPAF_ERR_TIMEOUT: they have not
 * yet, and may still. */
stepaf_status_t stepaf_return_ask(struct stepaf_ctx *ctx, const void *advert, size_t bytes,
                                  void **all_p, size_t *offsets_p, int64_t deadline_ns);

#endif
