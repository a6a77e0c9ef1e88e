/* SPDX-License-Identifier: Apache-2.0 */
/* This process as a client of PMIx: one for all contexts, from the first that opens until the
 * process exits. One that ended earlier could not begin again: ranks that are still leaving break
 * the fences of those that are back. PMIx counts its users by itself, so that an MPI in the process
 * may be another. */
#ifndef STEPAF_PMIX_SESSION_H
#define STEPAF_PMIX_SESSION_H

#include <stdatomic.h>

#include <pmix.h>

#include "boot_common.h"

struct stepaf_pmix_session {
    pmix_proc_t self;
    int size;       /* of the job */
    int app_number; /* -1 where there is only one application */
    /* By rank: whether it is on this node, so that its data are at this rank's server; NULL: not
     * known. */
    unsigned char *is_near;
    /* Ranks that the launcher has reported lost, in the order in which it did. Only PMIx's thread
     * writes: the rank first, then the number of them. */
    int *lost;
    _Atomic int n_lost;
    _Atomic unsigned char *is_lost; /* by rank */
};

/* Become a client, if the process is none yet. STEPAF_ERR_BOOT: no server, or it says nothing of
 * the job. */
stepaf_status_t stepaf_pmix_session_open(const struct stepaf_pmix_session **session_p);

/* The status for PMIx's @a code of the call or action @a what; records the sentence. */
stepaf_status_t stepaf_pmix_error(pmix_status_t code, const char *what);

#endif
