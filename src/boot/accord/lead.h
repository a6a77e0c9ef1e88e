/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's part: the first of those that are there. */
#ifndef STEPAF_BOOT_ACCORD_LEAD_H
#define STEPAF_BOOT_ACCORD_LEAD_H

#include "boot/accord/accord.h"

void stepaf_accord_lead_begin(struct stepaf_accord *accord);
/* Go on, if nobody is waited for any more. */
void stepaf_accord_lead_on(struct stepaf_accord *accord);
/* One has promised. */
void stepaf_accord_lead_promise(struct stepaf_accord *accord, int from,
                                const struct stepaf_accord_message *message);
void stepaf_accord_lead_drop(struct stepaf_accord *accord);
/* The decision is made. */
void stepaf_accord_conclude(struct stepaf_accord *accord);

#endif
