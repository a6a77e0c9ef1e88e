/* SPDX-License-Identifier: Apache-2.0 */
/* Launch under mpirun: the shared page, and the verdict that all ranks agree on. */
#include "harness.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stepaf/mpi.h>

bool hs_mpi_launched(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMI_SIZE") != NULL ||
           getenv("PMIX_RANK") != NULL;
}

/* Rank 0 makes a page without a name, the others open it through the process file system. */
static void share_page(struct hs_job *job)
{
    char path[64];
    int where[2] = {0, -1}, good, all;
    size_t bytes = sizeof *job->shared;

    if (job->rank == 0) {
        where[0] = getpid();
        where[1] = memfd_create("test-page", MFD_CLOEXEC);
        if (where[1] >= 0 && ftruncate(where[1], (off_t)bytes) != 0)
            where[1] = -1;
    }
    MPI_Bcast(where, 2, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", where[0], where[1]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    job->shared =
        fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    good = job->shared != MAP_FAILED;
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!all) {
        hs_skip("the ranks are not all on one host");
        MPI_Finalize();
        exit(77);
    }
    close(fd);
    if (job->rank == 0)
        close(where[1]);
}

void hs_mpi_start(struct hs_job *job, int *argc_p, char ***argv_p)
{
    int provided;

    MPI_Init_thread(argc_p, argv_p, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &job->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job->size);
    job->by_mpi = true;
    hs_set_rank(job->rank);
    if (job->size > HS_MAX_RANKS) {
        hs_skip("more than %d ranks", HS_MAX_RANKS);
        MPI_Finalize();
        exit(77);
    }
    share_page(job);
    atomic_store(&job->shared->pid[job->rank], getpid());
    MPI_Barrier(MPI_COMM_WORLD);
}

stepaf_status_t hs_mpi_init(const stepaf_params_t *params, stepaf_context_h *ctx_p)
{
    return stepaf_init_mpi(MPI_COMM_WORLD, params, ctx_p);
}

/* With a rank gone, MPI cannot be finalized: the survivors agree through the page and leave. */
static _Noreturn void leave(struct hs_job *job, const char *name)
{
    int verdict = hs_verdict();
    bool first = true;

    for (int rank = 0, turns = 0; rank < job->size; turns++) {
        int other = atomic_load(&job->shared->verdict[rank]);
        if (other == 0 && !atomic_load(&job->shared->doomed[rank]) && turns < 300000) {
            hs_sleep_us(100);
            continue;
        }
        if (other == 0 && !atomic_load(&job->shared->doomed[rank]))
            verdict = HS_FAIL;
        if (other - 1 > verdict)
            verdict = other - 1;
        if (other != 0 && rank < job->rank)
            first = false;
        rank++;
    }
    if (first) {
        printf("%s %s\n", verdict == HS_PASS ? "PASS" : verdict == HS_SKIP ? "SKIP" : "FAIL", name);
        fflush(stdout);
    }
    _exit(verdict == HS_PASS ? 0 : verdict == HS_SKIP ? 77 : 1);
}

_Noreturn void hs_mpi_end(struct hs_job *job, const char *name)
{
    static const char *words[] = {"PASS", "SKIP", "FAIL"};
    int mine = hs_verdict(), all, code;

    for (int rank = 0; rank < job->size; rank++)
        if (job->abandoned || atomic_load(&job->shared->doomed[rank]))
            leave(job, name);
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (job->rank == 0)
        printf("%s %s\n", words[all], name);
    code = all == HS_PASS ? 0 : all == HS_SKIP ? 77 : 1;
    MPI_Finalize();
    exit(code);
}
