/* SPDX-License-Identifier: Apache-2.0 */
/* Starts without a launcher: two processes, --listen in one and --connect HOST in the other; and
 * ranks whose environment says where they meet. */
#ifndef PERF_MEET_H
#define PERF_MEET_H

#include "options.h"

/* Whether the ranks meet by themselves: the options are put into the environment, where the
 * library finds them. -1 with a sentence. */
int perf_meet_ask(const struct perf_options *options);

/* Whether the environment says where ranks meet. */
int perf_meets(void);

#endif
