/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap on PMIx, inside libstepaf_pmix. */
#ifndef STEPAF_BOOT_PMIX_H
#define STEPAF_BOOT_PMIX_H

#include <stepaf/pmix.h>

#include "pmix_session.h"

enum { STEPAF_PMIX_GROUPS = 3 };

/* The membership of one context: stepaf_boot_t's self. */
struct stepaf_pmix {
    const struct stepaf_pmix_session *session;
    unsigned number;    /* number of the context in this process: a part of its keys */
    unsigned exchanges; /* exchanges begun; another part */
    unsigned lost_seen; /* lost ranks of the session seen so far */
    unsigned barriers[STEPAF_PMIX_GROUPS]; /* barriers begun; another part */
    int exchange_failed; /* an abandoned exchange may still complete: no other may follow */
    int barrier_failed[STEPAF_PMIX_GROUPS];
};

/* The functions of the bootstrap (see stepaf_boot_t); in pmix_exchange.c and pmix_barrier.c. */
stepaf_status_t stepaf_pmix_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                      size_t *offsets_p, int64_t timeout_us);
stepaf_status_t stepaf_pmix_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                    int64_t timeout_us);

#endif
