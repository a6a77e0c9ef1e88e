/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input to stepaf_init: bootstraps that are wrong, fail or garble what they carry; too many
 * contexts; a rank that never comes. */
#include "bad_init.h"

#include <stdlib.h>
#include <string.h>

static stepaf_boot_t carrier; /* the good one below */
static int garble;            /* what to do to what it gathers */

enum { FAIL, TRUNCATE, EMPTY, FLIP, SHIFT, GARBLES };

static stepaf_status_t bad_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                     size_t *offsets_p, int64_t timeout_us)
{
    void *all = NULL;
    stepaf_status_t status = carrier.allgather(self, data, bytes, &all, offsets_p, timeout_us);
    size_t total;

    if (status != STEPAF_OK)
        return status;
    total = offsets_p[carrier.size];
    if (garble == FAIL) {
        free(all);
        return stepaf_boot_set_error(STEPAF_ERR_BOOT, "the carrier has dropped it");
    }
    *all_p = all;
    if (garble == TRUNCATE)
        offsets_p[carrier.size] = offsets_p[carrier.size - 1] + 8;
    for (int i = 1; garble == EMPTY && i <= carrier.size; i++)
        offsets_p[i] = 0;
    for (size_t i = 0; garble == FLIP && i < total; i++)
        ((unsigned char *)all)[i] ^= 0xff;
    if (garble == SHIFT)
        memmove(all, (char *)all + 1, total - 1);
    return STEPAF_OK;
}

/* Make the good bootstrap known to the harness, and take a copy. */
bool bad_borrow(struct hs_job *job, stepaf_boot_t *boot_p)
{
    if (job->boot_state[0] == 0) {
        if (!HS_OK(stepaf_boot_local_attach(job->locals[0], job->rank, -1, &job->boots[0])))
            return false;
        job->boot_state[0] = 1;
    }
    carrier = job->boots[0];
    *boot_p = carrier;
    return true;
}

static void refuse(const stepaf_boot_t *boot, const char *what)
{
    stepaf_params_t params = bad_good_params();
    stepaf_context_h ctx = NULL;

    if (!HS_REFUSED(stepaf_init(boot, &params, &ctx), STEPAF_ERR_INVALID) || !HS_TRUE(ctx == NULL))
        HS_FAILED("%s", what);
}

static void bad_locals(void)
{
    stepaf_boot_local_t *local = NULL;
    stepaf_boot_t boot = {.size = -77};

    HS_REFUSED(stepaf_boot_local_create(0, &local), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_boot_local_create(-1, &local), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_boot_local_create(1025, &local), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_boot_local_create(1, NULL), STEPAF_ERR_INVALID);
    HS_TRUE(local == NULL);
    if (!HS_OK(stepaf_boot_local_create(3, &local)))
        return;
    HS_REFUSED(stepaf_boot_local_attach(local, 3, -1, &boot), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_boot_local_attach(local, -1, -1, &boot), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_boot_local_attach(NULL, 0, -1, &boot), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_boot_local_attach(local, 0, -1, NULL), STEPAF_ERR_INVALID);
    HS_INT(boot.size, ==, -77);
    stepaf_boot_local_destroy(local);
    stepaf_boot_local_destroy(NULL);
}

void bad_boots(struct hs_job *job)
{
    stepaf_params_t params = bad_good_params();
    stepaf_context_h ctx = NULL;
    stepaf_boot_t boot;

    bad_locals();
    if (job->launched || !bad_borrow(job, &boot))
        return; /* libstepaf_mpi makes its own */
    boot.rank = -1, refuse(&boot, "negative rank"), boot = carrier;
    boot.rank = boot.size, refuse(&boot, "rank beyond the size"), boot = carrier;
    boot.size = 0, refuse(&boot, "no ranks"), boot = carrier;
    boot.size = -2, refuse(&boot, "negative size"), boot = carrier;
    boot.allgather = NULL, refuse(&boot, "no allgather"), boot = carrier;
    boot.barrier = NULL, refuse(&boot, "no barrier"), boot = carrier;
    boot.allgather = bad_allgather;
    for (garble = FAIL; garble < GARBLES; garble++) {
        stepaf_status_t status = stepaf_init(&boot, &params, &ctx);
        if (!HS_TRUE(status < 0) || !HS_REFUSED(status, status) || !HS_TRUE(ctx == NULL))
            HS_FAILED("garbled in way %d: %s", garble, stepaf_status_name(status));
        stepaf_finalize(ctx);
        ctx = NULL;
        if (garble == FAIL)
            HS_STATUS(status, STEPAF_ERR_BOOT);
        hs_pause(job);
    }
}

/* As many contexts as a process may have, and one more, at every rank or at the last one only. */
void bad_contexts(struct hs_job *job)
{
    static stepaf_context_h all[CONTEXTS_MAX];
    stepaf_params_t params = bad_good_params();
    stepaf_context_h ctx = NULL;

    setenv("STEPAF_TRACE_RECORDS", "16", 1);
    for (int i = 0; i < CONTEXTS_MAX; i++)
        if (!HS_OK(hs_init(job, FIRST_OF_MANY + i, &params, &all[i])))
            break;
    HS_REFUSED(hs_init(job, BAD_LAST, &params, &ctx), STEPAF_ERR_LIMIT);
    HS_TRUE(ctx == NULL);
    HS_INT(stepaf_size(all[0], STEPAF_GROUP_WORLD), ==, job->size);
    hs_pause(job);
    if (job->rank != job->size - 1)
        stepaf_finalize(all[1]);
    HS_REFUSED(hs_init(job, BAD_LAST, &params, &ctx), STEPAF_ERR_LIMIT);
    HS_TRUE(ctx == NULL && strstr(stepaf_last_error()->text, "64 contexts already"));
    hs_pause(job);
    for (int i = 0; i < CONTEXTS_MAX; i++)
        stepaf_finalize(all[i]);
    unsetenv("STEPAF_TRACE_RECORDS");
    /* A place that was given back can be taken again. */
    hs_pause(job);
    if (HS_OK(hs_init(job, BAD_LAST - 1, &params, &ctx)))
        stepaf_finalize(ctx);
}

/* The last rank does not come to bootstrap @a boot: the others give up in time. */
static void await_missing(struct hs_job *job, int boot)
{
    stepaf_params_t params = bad_good_params();
    stepaf_context_h ctx = NULL;
    int64_t began = hs_now_ns();

    HS_REFUSED(hs_init(job, boot, &params, &ctx), STEPAF_ERR_TIMEOUT);
    HS_INT(stepaf_last_error()->phase, ==, STEPAF_PHASE_INIT);
    if (job->size == 2 && !getenv("TEST_BOOT_JOIN"))
        HS_INT(stepaf_last_error()->peer_world_rank, ==, 1);
    HS_INT((hs_now_ns() - began) / 1000, >=, 190000);
    HS_INT((hs_now_ns() - began) / 1000, <=, 2000000 * hs_slow());
    HS_TRUE(ctx == NULL);
}

/* Also where their own input is bad; for ranks that have to find each other, once is enough. */
void bad_missing(struct hs_job *job)
{
    if (job->launched || job->rank == job->size - 1)
        return; /* an exchange given up in the middle would be in MPI's way for good */
    setenv("STEPAF_INIT_TIMEOUT_US", "200000", 1);
    await_missing(job, BAD_LAST);
    setenv("STEPAF_DEPTH", "0", 1);
    if (!getenv("TEST_BOOT_JOIN"))
        await_missing(job, BAD_LAST - 2);
    unsetenv("STEPAF_DEPTH");
    unsetenv("STEPAF_INIT_TIMEOUT_US");
}
