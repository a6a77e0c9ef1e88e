/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_TRANSPORT_VERBS_RAIL_H
#define STEPAF_TRANSPORT_VERBS_RAIL_H

#include "transport/verbs/verbs.h"

/* Open a port as the next rail. What fails leaves nothing open. */
stepaf_status_t stepaf_verbs_rail_open(struct stepaf_verbs *verbs, struct ibv_device *device,
                                       uint8_t port);
void stepaf_verbs_rail_close(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail);

#endif
