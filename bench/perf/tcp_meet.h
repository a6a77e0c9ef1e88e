/* SPDX-License-Identifier: Apache-2.0 */
/* One plain TCP connection between each attention rank and each FFN rank. */
#ifndef PERF_TCP_MEET_H
#define PERF_TCP_MEET_H

#include "job.h"
#include "place.h"

/* Connect. fds_p has room for one socket for each rank of the other role, in the order of its
 * group; the caller closes those that are not -1, also after a failure. Sockets are blocking.
 * Nobody else gets a connection: a secret is asked for that went through the job's channel.
 * Collective; -1 with a sentence on every rank. */
int perf_tcp_meet(struct perf_job *job, const struct perf_place *place, int *fds_p);

#endif
