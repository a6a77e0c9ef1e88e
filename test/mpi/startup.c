/* SPDX-License-Identifier: Apache-2.0 */
/* A job that does nothing but start, for the script that looks at what a start says that fails:
 * each rank prints the reason as "startup: REASON" and its exit code is 1.
 *
 * Under a launcher, where --late RANK does not come; or with --fork N ranks of its own, where
 * --version RANK speaks another version of the protocol. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stepaf/mpi.h>
#include <stepaf/stepaf.h>

enum { VERSION_AT = 4, LATE_S = 60, KEY_BYTES = 64 };

static int fork_ranks, late_rank = -1, version_rank = -1;
static stepaf_boot_t carrier;

/* One write, so that lines of several ranks do not mix. */
static int say(void)
{
    char line[STEPAF_ERROR_TEXT_MAX + 16];
    int bytes = snprintf(line, sizeof line, "startup: %s\n", stepaf_last_error()->text);

    return write(STDOUT_FILENO, line, (size_t)bytes) == bytes ? 1 : 2;
}

/* The version is the second word of what a rank introduces itself with. */
static stepaf_status_t allgather_other(void *self, const void *data, size_t bytes, void **all_p,
                                       size_t *offsets_p, int64_t timeout_us)
{
    unsigned char *copy = malloc(bytes);
    stepaf_status_t status = STEPAF_ERR_NO_MEMORY;

    if (copy != NULL && bytes > VERSION_AT) {
        memcpy(copy, data, bytes);
        copy[VERSION_AT] ^= 0x40;
        status = carrier.allgather(self, copy, bytes, all_p, offsets_p, timeout_us);
    }
    free(copy);
    return status;
}

/* Every rank declares one key and offers memory, so that the commit has something to do. */
static stepaf_status_t commit(stepaf_context_h ctx)
{
    stepaf_status_t status = stepaf_key_declare(ctx, 1, STEPAF_PUSH, KEY_BYTES, NULL);

    if (status == STEPAF_OK)
        status = stepaf_commit(ctx);
    if (status == STEPAF_OK)
        status = stepaf_barrier(ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT);
    return status;
}

/* What is left of a start once there is, or is not, a context. */
static int finish(stepaf_status_t status, stepaf_context_h ctx)
{
    int code = 0;

    if (status == STEPAF_OK)
        status = commit(ctx);
    if (status != STEPAF_OK)
        code = say();
    /* The collective that MPI is still in would keep MPI_Finalize waiting. */
    if (status == STEPAF_ERR_TIMEOUT)
        _exit(code);
    stepaf_finalize(ctx);
    return code;
}

static int forked_rank(stepaf_boot_local_t *local, int rank)
{
    stepaf_context_h ctx = NULL;
    stepaf_status_t status;
    stepaf_boot_t boot;

    if (stepaf_boot_local_attach(local, rank, -1, &boot) != STEPAF_OK)
        return say();
    carrier = boot;
    if (rank == version_rank)
        boot.allgather = allgather_other;
    status = stepaf_init(&boot, NULL, &ctx);
    if (status != STEPAF_OK && carrier.close != NULL)
        carrier.close(carrier.self);
    return finish(status, ctx);
}

static int run_forked(void)
{
    stepaf_boot_local_t *local = NULL;
    int code = 0, status;

    if (stepaf_boot_local_create(fork_ranks, &local) != STEPAF_OK)
        return say();
    for (int rank = 0; rank < fork_ranks; rank++) {
        pid_t pid = fork();
        if (pid < 0)
            return 2;
        if (pid == 0)
            exit(forked_rank(local, rank));
    }
    while (wait(&status) > 0)
        if (!WIFEXITED(status) || WEXITSTATUS(status) > code)
            code = WIFEXITED(status) ? WEXITSTATUS(status) : 2;
    stepaf_boot_local_destroy(local);
    return code;
}

static int run_mpi(int argc, char **argv)
{
    stepaf_context_h ctx = NULL;
    stepaf_status_t status;
    int rank, code;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == late_rank)
        sleep(LATE_S);
    status = stepaf_init_mpi(MPI_COMM_WORLD, NULL, &ctx);
    code = finish(status, ctx);
    MPI_Finalize();
    return code;
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        int value = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--fork") == 0)
            fork_ranks = value;
        else if (strcmp(argv[i], "--late") == 0)
            late_rank = value;
        else if (strcmp(argv[i], "--version") == 0)
            version_rank = value;
        else
            return 2;
    }
    return fork_ranks > 0 ? run_forked() : run_mpi(argc, argv);
}
