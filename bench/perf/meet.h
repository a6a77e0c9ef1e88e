/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes without a launcher: --listen in one, --connect HOST in the other; and ranks whose
 * environment says where they meet. */
#ifndef PERF_MEET_H
#define PERF_MEET_H

#include "options.h"

/* Whether the ranks meet by themselves: what the options say is put into the environment, where the
 * library finds it. -1 with a sentence. */
int perf_meet_ask(const struct perf_options *options);

/* Whether the environment says where ranks meet. */
int perf_meets(void);

#endif
