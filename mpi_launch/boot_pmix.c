/* SPDX-License-Identifier: Apache-2.0 */
/* The start on PMIx. */
#include "boot_pmix.h"

#include <stdlib.h>

static _Atomic unsigned contexts; /* begun by this process */

static void close_pmix(void *self)
{
    free(self);
}

static int lost_pmix(void *self, int *ranks_p, int capacity)
{
    struct stepaf_pmix *pmix = self;
    unsigned known = (unsigned)atomic_load_explicit(&pmix->session->n_lost, memory_order_acquire);
    int n = 0;
    while (n < capacity && pmix->lost_seen < known)
        ranks_p[n++] = pmix->session->lost[pmix->lost_seen++];
    return n;
}

stepaf_status_t stepaf_init_pmix(const stepaf_params_t *params, stepaf_context_h *ctx_p)
{
    const struct stepaf_pmix_session *session;
    stepaf_status_t status = stepaf_pmix_session_open(&session);
    if (status != STEPAF_OK)
        return status;
    struct stepaf_pmix *pmix = calloc(1, sizeof *pmix);
    if (!pmix)
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "no memory for the PMIx bootstrap");
    pmix->session = session;
    pmix->number = atomic_fetch_add(&contexts, 1);

    stepaf_boot_t boot = {
        .name = "pmix",
        .self = pmix,
        .rank = (int)session->self.rank,
        .size = session->size,
        .app_number = session->app_number,
        .allgather = stepaf_pmix_allgather,
        .barrier = stepaf_pmix_barrier,
        .close = close_pmix,
        .lost = lost_pmix,
    };
    status = stepaf_init(&boot, params, ctx_p);
    if (status != STEPAF_OK)
        close_pmix(pmix);
    return status;
}
