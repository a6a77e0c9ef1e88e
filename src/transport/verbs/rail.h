/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_TRANSPORT_VERBS_RAIL_H
#define STEPAF_TRANSPORT_VERBS_RAIL_H

#include "transport/verbs/verbs.h"

/* Open a port as the next rail. What fails leaves nothing open. */
stepaf_status_t stepaf_verbs_rail_open(struct stepaf_verbs *verbs, struct ibv_device *device,
                                       uint8_t port);
void stepaf_verbs_rail_close(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail);

/* gid.c */
/* Of a RoCE port that has a protection domain: the best entry of the table by which packets can be
 * sent. */
stepaf_status_t stepaf_verbs_gid_choose(const struct stepaf_verbs *verbs,
                                        struct stepaf_verbs_rail *rail,
                                        const struct ibv_port_attr *port);
/* What has become of it, in words; NULL: nothing. */
const char *stepaf_verbs_gid_change(const struct stepaf_verbs *verbs,
                                    const struct stepaf_verbs_rail *rail);

/* attributes.c */
/* MTU, service level and P_Key of a rail that has an address. */
stepaf_status_t stepaf_verbs_attributes_choose(const struct stepaf_verbs *verbs,
                                               struct stepaf_verbs_rail *rail,
                                               const struct ibv_port_attr *port);
/* For how long a device sends again; settings that contradict each other are warned of. */
void stepaf_verbs_timeout_choose(struct stepaf_verbs *verbs);

#endif
