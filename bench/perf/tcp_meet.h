/* SPDX-License-Identifier: Apache-2.0 */
/* One plain TCP connection between each attention rank and each FFN rank. */
#ifndef PERF_TCP_MEET_H
#define PERF_TCP_MEET_H

#include "job.h"
#include "place.h"

/* Connect. fds_p has space for one socket for each rank of the other role, in the order of its
 * group; the caller closes those that are not -1, also after a failure. Sockets are blocking.
 * Strangers get no connection: a secret from the job's channel is required. Collective; -1 with
 * a sentence on every rank. */
int perf_tcp_meet(struct perf_job *job, const struct perf_place *place, int *fds_p);

#endif
