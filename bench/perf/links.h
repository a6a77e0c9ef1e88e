/* SPDX-License-Identifier: Apache-2.0 */
/* The transports that a run may use, and those that its links use in fact. */
#ifndef PERF_LINKS_H
#define PERF_LINKS_H

#include "job.h"
#include "options.h"

enum { PERF_LINKS_MAX = 96 };

/* Put --transport into the environment, where every context of the run finds it. Call before any
 * context is made. The previous value is kept for the report. -1 with a sentence. */
int perf_links_ask(struct perf_options *options);

/* The setting in force: "" admits all transports. */
const char *perf_links_setting(void);

/* Name the transports of all links of all ranks, each once: "shm;cma", "shm;cma + tcp;eth0".
 * After commit. Collective; -1 with a sentence. */
int perf_links_learn(struct perf_job *job, stepaf_context_h ctx, char text_p[PERF_LINKS_MAX]);

/* Whether @a text, as learned or as set, has a link or a name of @a transport. */
int perf_links_have(const char *text, const char *transport);

#endif
