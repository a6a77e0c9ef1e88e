/* SPDX-License-Identifier: Apache-2.0 */
/* The barrier of a group. The barrier of all ranks is a fence. PMIx has fences of some ranks
 * too, but Slurm's do not synchronize between nodes; so each rank puts tokens and asks for those
 * of others. */
#include <stdio.h>
#include <time.h>

#include "boot_pmix.h"
#include "pmix_call.h"

enum { ASK_AGAIN_NS = 1000000 };

static void write_key(const struct stepaf_pmix *pmix, stepaf_group_t group, int round,
                      pmix_key_t key_p)
{
    snprintf(key_p, PMIX_MAX_KEYLEN, "stepaf.b.%u.%d.%u.%d", pmix->number, (int)group,
             pmix->barriers[group], round);
}

static stepaf_status_t put_token(const char *key)
{
    pmix_value_t value;
    uint32_t token = 1;
    PMIX_VALUE_LOAD(&value, &token, PMIX_UINT32);
    pmix_status_t code = PMIx_Put(PMIX_GLOBAL, key, &value);
    if (code == PMIX_SUCCESS)
        code = PMIx_Commit();
    return code == PMIX_SUCCESS ? STEPAF_OK : stepaf_pmix_error(code, "barrier: PMIx_Put");
}

static stepaf_status_t await_token(const struct stepaf_pmix_session *session, const char *key,
                                   int from, int round, const int *ranks, int n,
                                   int64_t deadline_ns)
{
    for (;;) {
        signed char answer = -1;
        stepaf_status_t status =
            stepaf_pmix_ask(session, key, from, 1, deadline_ns, "barrier", &answer);
        if (status != STEPAF_OK || answer == 1)
            return status;
        int dead = stepaf_pmix_first_lost(session, ranks, n);
        if (dead >= 0)
            return stepaf_pmix_lost(dead, "barrier");
        int64_t pause_ns = stepaf_boot_pause_ns(ASK_AGAIN_NS);
        if (pause_ns < 0 || stepaf_boot_now_ns() >= deadline_ns)
            return stepaf_boot_fail(STEPAF_ERR_TIMEOUT,
                                    "PMIx bootstrap: barrier: rank %d%s did not arrive in time",
                                    from, round ? ", or one that it waits for," : "");
        nanosleep(&(struct timespec){0, pause_ns}, NULL);
    }
}

/* Dissemination: in each round a token for the rank twice as many places on; after the last
 * round every rank has, indirectly, been notified by all others. */
static stepaf_status_t barrier_of_some(struct stepaf_pmix *pmix, stepaf_group_t group,
                                       const int *ranks, int n, int place, int64_t deadline_ns)
{
    stepaf_status_t status = STEPAF_OK;
    pmix->barriers[group]++;
    for (int round = 0, distance = 1; distance < n && status == STEPAF_OK; round++, distance *= 2) {
        pmix_key_t key;
        write_key(pmix, group, round, key);
        status = put_token(key);
        if (status == STEPAF_OK)
            status = await_token(pmix->session, key, ranks[(place - distance + n) % n], round,
                                 ranks, n, deadline_ns);
    }
    return status;
}

stepaf_status_t stepaf_pmix_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                    int64_t timeout_us)
{
    struct stepaf_pmix *pmix = self;
    const struct stepaf_pmix_session *session = pmix->session;
    int64_t deadline_ns = stepaf_boot_deadline(timeout_us);
    int place = 0;

    if ((unsigned)group >= STEPAF_PMIX_GROUPS || n < 1 || n > session->size)
        return stepaf_boot_fail(STEPAF_ERR_INVALID, "PMIx bootstrap: no group %d of %d ranks",
                                (int)group, n);
    while (place < n && ranks[place] != (int)session->self.rank)
        place++;
    if (place == n)
        return stepaf_boot_fail(STEPAF_ERR_INVALID, "PMIx bootstrap: rank %d is not in group %d",
                                (int)session->self.rank, (int)group);
    if (pmix->barrier_failed[group])
        return stepaf_boot_fail(STEPAF_ERR_BOOT,
                                "PMIx bootstrap: no barrier is possible after one has failed");
    int dead = stepaf_pmix_first_lost(session, ranks, n);
    stepaf_status_t status = dead >= 0 ? stepaf_pmix_lost(dead, "barrier")
                             : n == session->size
                                 ? stepaf_pmix_fence(session, deadline_ns, "barrier")
                                 : barrier_of_some(pmix, group, ranks, n, place, deadline_ns);
    pmix->barrier_failed[group] = status != STEPAF_OK;
    return status;
}
