/* SPDX-License-Identifier: Apache-2.0 */
/* Launch on MPI: the shared page, and the verdict that all ranks agree on. */
#include "harness.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <stepaf/mpi.h>

bool hs_launch_found(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMI_SIZE") != NULL ||
           getenv("PMIX_RANK") != NULL;
}

void hs_mpi_share_page(struct hs_job *job)
{
    int where[2] = {0, -1}, good, all;

    if (job->rank == 0)
        hs_page_create(where);
    MPI_Bcast(where, 2, MPI_INT, 0, MPI_COMM_WORLD);
    good = hs_page_open(job, where);
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!all) {
        hs_skip("the ranks are not all on one host");
        MPI_Finalize();
        exit(77);
    }
    if (job->rank == 0)
        close(where[1]);
}

void hs_launch_start(struct hs_job *job, int *argc_p, char ***argv_p)
{
    int provided;

    MPI_Init_thread(argc_p, argv_p, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &job->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job->size);
    job->launched = true;
    hs_set_rank(job->rank);
    if (job->size > HS_MAX_RANKS) {
        hs_skip("more than %d ranks", HS_MAX_RANKS);
        MPI_Finalize();
        exit(77);
    }
    hs_mpi_share_page(job);
    atomic_store(&job->shared->pid[job->rank], getpid());
    MPI_Barrier(MPI_COMM_WORLD);
}

stepaf_status_t hs_launch_init(const stepaf_params_t *params, stepaf_context_h *ctx_p)
{
    return getenv("TEST_BOOT_AUTO") ? stepaf_init(NULL, params, ctx_p)
                                    : stepaf_init_mpi(MPI_COMM_WORLD, params, ctx_p);
}

_Noreturn void hs_launch_end(struct hs_job *job, const char *name)
{
    static const char *words[] = {"PASS", "SKIP", "FAIL"};
    int mine = hs_verdict(), all;

    /* Else the survivors agree through the page, and leave. */
    if (!hs_launcher_whole(job))
        _exit(hs_exit_code(hs_page_verdict(job, name)));
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (job->rank == 0)
        printf("%s %s\n", words[all], name);
    MPI_Finalize();
    exit(hs_exit_code(all));
}
