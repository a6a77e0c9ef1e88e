/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that take lost ranks' places (guests). In its advert each member states whom it can
 * admit, and, as a guest's home, forwards the guest's hello and advert. The check of the guest
 * therefore has the same outcome everywhere, needs no exchange of its own, and waits for no process
 * that is no member. */
#ifndef STEPAF_WIREUP_RETURNS_H
#define STEPAF_WIREUP_RETURNS_H

#include "boot/boot_return.h"
#include "wireup/advert.h"
#include "wireup/hello.h"

/* Judge all adverts as stepaf_adverts_check does, including the guests that all members can admit
 * and want to admit. Their adverts replace those of the lost ranks, as ctx->job.members.returned
 * records. A guest that does not fit is rejected and is no reason to fail. */
stepaf_status_t stepaf_returns_check(struct stepaf_ctx *ctx, struct stepaf_advert *adverts);
/* Take over where all ranks are from the members that have admitted this guest: the guest has
 * looked some time ago, and others may have returned since. Called before the adverts are read. */
void stepaf_returns_take_facts(struct stepaf_ctx *ctx);
/* Make the admitted guests members and notify them, even after a failure: in the next exchange of
 * all ranks, this rank reports its failure. */
stepaf_status_t stepaf_returns_adopt(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts);

/* Do a guest's init: ask a member for the roles and hellos of all ranks. @a own is this process's
 * hello; @a said is the role that the process requests itself. roles_p: by world rank. The results
 * are the same as those of the exchange of all ranks. */
stepaf_status_t stepaf_return_look(struct stepaf_ctx *ctx, const struct stepaf_boot_return *returns,
                                   stepaf_role_t said, const struct stepaf_member_contact *contact,
                                   const struct stepaf_pack *own, void **all_p, size_t *offsets_p,
                                   uint8_t *roles_p, int64_t timeout_us);

/* Do the first exchange of a guest's first commit: ask until the members admit this process, and
 * return what they have exchanged, as stepaf_members_exchange does. STEPAF_ERR_TIMEOUT: not
 * admitted yet; may still be. */
stepaf_status_t stepaf_return_ask(struct stepaf_ctx *ctx, const void *advert, size_t bytes,
                                  void **all_p, size_t *offsets_p, int64_t deadline_ns);

#endif
