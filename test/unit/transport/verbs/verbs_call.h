/* SPDX-License-Identifier: Apache-2.0 */
/* Two sides connected by librdmacm's stand-in: b listens, a connects. */
#ifndef STEPAF_TEST_VERBS_CALL_H
#define STEPAF_TEST_VERBS_CALL_H

#include "transport/verbs/cm.h"
#include "verbs_cm.h"
#include "verbs_side.h"

/* Open a listening side and one that connects, with these settings, and unless they say
 * otherwise VERBS_CONNECT=cm. */
void calls_open(struct vside *a, struct vside *b, const char *settings);
/* Tell each of the other, so that both know whom to connect to. */
void calls_meet(struct vside *a, struct vside *b);
/* Let both go on, in turn, until nothing comes any more. */
void calls_drive(struct vside *a, struct vside *b);
/* What the side's join says if its deadline is now. */
stepaf_status_t calls_join(struct vside *side, char reason[STEPAF_REASON_MAX]);
/* The state of the side's call on a path to peer 0. */
enum stepaf_verbs_call_state calls_state(const struct vside *side, unsigned path);
uint32_t calls_qpn(const struct vside *side, unsigned path);

#endif
