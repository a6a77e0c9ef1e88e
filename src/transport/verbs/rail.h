/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_TRANSPORT_VERBS_RAIL_H
#define STEPAF_TRANSPORT_VERBS_RAIL_H

#include "transport/verbs/verbs.h"

/* Open a port as the next rail. A failure leaves nothing open. */
stepaf_status_t stepaf_verbs_rail_open(struct stepaf_verbs *verbs, struct ibv_device *device,
                                       uint8_t port);
void stepaf_verbs_rail_close(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail);

/* gid.c */
/* For a RoCE port with a protection domain: choose the best entry of the GID table with which
 * packets can be sent. */
stepaf_status_t stepaf_verbs_gid_choose(const struct stepaf_verbs *verbs,
                                        struct stepaf_verbs_rail *rail,
                                        const struct ibv_port_attr *port);
/* Describe, as text, how that entry has changed; NULL if it has not. */
const char *stepaf_verbs_gid_change(const struct stepaf_verbs *verbs,
                                    const struct stepaf_verbs_rail *rail);

/* attributes.c */
/* Choose MTU, service level and P_Key of a rail that has an address. */
stepaf_status_t stepaf_verbs_attributes_choose(const struct stepaf_verbs *verbs,
                                               struct stepaf_verbs_rail *rail,
                                               const struct ibv_port_attr *port);
/* Choose how long a device retransmits; warn of settings that contradict each other. */
void stepaf_verbs_timeout_choose(struct stepaf_verbs *verbs);

#endif
