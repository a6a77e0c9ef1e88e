/* SPDX-License-Identifier: Apache-2.0 */
/* Launch on PMIx: as harness_mpi.c, in a process that has no MPI, which is checked. */
#include "harness.h"

#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stepaf/pmix.h>

static pmix_proc_t self;

bool hs_launch_found(void)
{
    return getenv("PMIX_RANK") != NULL;
}

static _Noreturn void give_up(const char *what, pmix_status_t code)
{
    fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(code));
    exit(1);
}

static void fence(void)
{
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, NULL, PMIX_BOOL);
    pmix_status_t code = PMIx_Fence(NULL, 0, &info, 1);
    PMIX_INFO_DESTRUCT(&info);
    if (code != PMIX_SUCCESS)
        give_up("PMIx_Fence", code);
}

static pmix_value_t *fetch(pmix_rank_t rank, const char *key)
{
    pmix_value_t *value = NULL;
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, self.nspace, rank);
    pmix_status_t code = PMIx_Get(&proc, key, NULL, 0, &value);
    if (code != PMIX_SUCCESS)
        give_up("PMIx_Get", code);
    return value;
}

static void share_page(struct hs_job *job)
{
    int where[2] = {0, -1};
    pmix_value_t mine = {.type = PMIX_BYTE_OBJECT}, *told;

    if (job->rank == 0)
        hs_page_create(where);
    mine.data.bo.bytes = (char *)where;
    mine.data.bo.size = sizeof where;
    PMIx_Put(PMIX_GLOBAL, "test.page", &mine);
    PMIx_Commit();
    fence();
    told = fetch(0, "test.page");
    memcpy(where, told->data.bo.bytes, sizeof where);
    PMIX_VALUE_RELEASE(told);
    if (!hs_page_open(job, where)) {
        hs_skip("the ranks are not all on one host");
        exit(77);
    }
    fence();
    if (job->rank == 0)
        close(where[1]);
}

void hs_launch_start(struct hs_job *job, int *argc_p, char ***argv_p)
{
    pmix_status_t code = PMIx_Init(&self, NULL, 0);

    (void)argc_p, (void)argv_p;
    if (code != PMIX_SUCCESS)
        give_up("PMIx_Init", code);
    pmix_value_t *size = fetch(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    job->rank = (int)self.rank;
    job->size = (int)size->data.uint32;
    PMIX_VALUE_RELEASE(size);
    job->launched = true;
    hs_set_rank(job->rank);
    if (job->size > HS_MAX_RANKS) {
        hs_skip("more than %d ranks", HS_MAX_RANKS);
        exit(77);
    }
    share_page(job);
}

stepaf_status_t hs_launch_init(const stepaf_params_t *params, stepaf_context_h *ctx_p)
{
    return getenv("TEST_BOOT_AUTO") ? stepaf_init(NULL, params, ctx_p)
                                    : stepaf_init_pmix(params, ctx_p);
}

_Noreturn void hs_launch_end(struct hs_job *job, const char *name)
{
    if (!HS_INT(hs_count_mappings(getpid(), "libmpi"), ==, 0) ||
        !HS_INT(hs_count_mappings(getpid(), "libpmix"), >, 0))
        atomic_store(&job->shared->verdict[job->rank], HS_FAIL + 1);
    bool is_whole = hs_launcher_whole(job);
    int code = hs_exit_code(hs_page_verdict(job, name));
    if (!is_whole)
        _exit(code);
    PMIx_Finalize(NULL, 0);
    exit(code);
}
