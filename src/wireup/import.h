/* SPDX-License-Identifier: Apache-2.0 */
/* Importing what a link makes available: the peer's memory, and this rank's keys in it. */
#ifndef STEPAF_WIREUP_IMPORT_H
#define STEPAF_WIREUP_IMPORT_H

#include "wireup/advert.h"

struct stepaf_peer;

/* Import all regions that the peer's advert offers, in place of the previous ones, and, at an
 * attention rank, find its push keys there. STEPAF_ERR_PROTOCOL, STEPAF_ERR_NO_MEMORY, or the error
 * of the transport's import_mem. */
stepaf_status_t stepaf_peer_import(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                   const struct stepaf_advert *advert);

#endif
