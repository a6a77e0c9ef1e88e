/* SPDX-License-Identifier: Apache-2.0 */
/* What a link brings with it: where the peer's memory is, and there this rank's keys. */
#ifndef STEPAF_WIREUP_IMPORT_H
#define STEPAF_WIREUP_IMPORT_H

#include "wireup/advert.h"

struct stepaf_peer;

/* Import all regions that the peer's advert offers, in place of those of before, and, at an
 * attention rank, find its push keys there. STEPAF_ERR_PROTOCOL, STEPAF_ERR_NO_MEMORY, or as the
 * transport's import_mem. */
stepaf_status_t stepaf_peer_import(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                   const struct stepaf_advert *advert);

#endif
