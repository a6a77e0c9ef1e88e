/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap on MPI by itself: exchanges of all sizes, barriers of groups, deadlines, and
 * communicators. The core is played by the few functions below, so that the bootstrap's own can be
 * called, and each can be left waiting. Runs under a launcher only, on 4 or more ranks. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stepaf/mpi.h>

#include "harness.h"

enum { RANKS_MAX = HS_MAX_RANKS, LONG_US = 20000000 };

/* ---- the core, as far as libstepaf_mpi needs it ---- */

static stepaf_boot_t boot;
static stepaf_status_t init_result;
static char last_text[STEPAF_ERROR_TEXT_MAX];
static int barriers_called;

stepaf_status_t stepaf_init(const stepaf_boot_t *offered, const stepaf_params_t *params,
                            stepaf_context_h *ctx_p)
{
    (void)params;
    if (init_result != STEPAF_OK)
        return init_result;
    boot = *offered;
    *ctx_p = (stepaf_context_h)&boot;
    return STEPAF_OK;
}

stepaf_status_t stepaf_boot_set_error(stepaf_status_t status, const char *text)
{
    snprintf(last_text, sizeof last_text, "%s", text);
    return status;
}

/* Even ranks are attention, odd ones FFN. */
static int members(stepaf_group_t group, int *ranks)
{
    int n = 0;
    for (int rank = 0; rank < boot.size; rank++)
        if (group == STEPAF_GROUP_WORLD || (rank % 2 == 1) == (group == STEPAF_GROUP_FFN))
            ranks[n++] = rank;
    return n;
}

int stepaf_size(stepaf_context_h ctx, stepaf_group_t group)
{
    int ranks[RANKS_MAX];
    (void)ctx;
    return members(group, ranks);
}

int stepaf_world_rank(stepaf_context_h ctx, stepaf_group_t group, int rank)
{
    int ranks[RANKS_MAX];
    (void)ctx;
    members(group, ranks);
    return ranks[rank];
}

int stepaf_rank(stepaf_context_h ctx, stepaf_group_t group)
{
    int ranks[RANKS_MAX];
    int n = members(group, ranks);
    (void)ctx;
    for (int i = 0; i < n; i++)
        if (ranks[i] == boot.rank)
            return i;
    return -1;
}

static int64_t default_timeout_us = LONG_US;

int64_t stepaf_default_timeout_us(stepaf_context_h ctx)
{
    (void)ctx;
    return default_timeout_us;
}

static stepaf_status_t barrier(stepaf_group_t group, int64_t timeout_us)
{
    int ranks[RANKS_MAX];
    int n = members(group, ranks);
    return boot.barrier(boot.self, group, ranks, n, timeout_us);
}

stepaf_status_t stepaf_barrier(stepaf_context_h ctx, stepaf_group_t group, int64_t timeout_us)
{
    (void)ctx;
    barriers_called++;
    return barrier(group, timeout_us < 0 ? LONG_US : timeout_us);
}

/* ---- checks ---- */

static int world_rank;
static int failures;

#define CHECK(condition_)                                                                         \
    do {                                                                                          \
        if (!(condition_)) {                                                                      \
            fprintf(stderr, "[rank %d] %s:%d: not so: %s (%s)\n", world_rank, __FILE__, __LINE__, \
                    #condition_, last_text);                                                      \
            failures++;                                                                           \
        }                                                                                         \
    } while (0)

static stepaf_context_h open_on(MPI_Comm comm)
{
    stepaf_context_h ctx = NULL;
    CHECK(stepaf_init_mpi(comm, NULL, &ctx) == STEPAF_OK);
    CHECK(strcmp(boot.name, "mpi") == 0);
    CHECK(boot.rank == world_rank);
    return ctx;
}

static stepaf_context_h open_context(void)
{
    return open_on(MPI_COMM_WORLD);
}

static size_t size_of(int rank, int round)
{
    static const size_t sizes[] = {0, 1, 1023, 1024, 1025, 300, 70000, 1 << 20};
    /* Some rounds fit into one collective, in others a single rank's data does not. */
    if (round % 3 == 0)
        return (size_t)(rank * 17 + round) % 1025;
    if (round % 3 == 1)
        return rank == round % 4 ? 5000 : (size_t)rank;
    return sizes[(size_t)(rank + round) % (sizeof sizes / sizeof *sizes)];
}

static unsigned char byte_of(int rank, int round, size_t i)
{
    return (unsigned char)(i * 31 + i / 251 + (size_t)rank * 7 + (size_t)round * 13);
}

static stepaf_status_t gather(int round, int64_t timeout_us)
{
    size_t offsets[RANKS_MAX + 1] = {77};
    size_t bytes = size_of(boot.rank, round);
    size_t end = 0;
    size_t wrong = 0;
    unsigned char *all = NULL;
    unsigned char *mine = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        mine[i] = byte_of(boot.rank, round, i);
    stepaf_status_t status =
        boot.allgather(boot.self, bytes ? mine : NULL, bytes, (void **)&all, offsets, timeout_us);
    memset(mine, 0xee, bytes + 1);
    free(mine);
    if (status != STEPAF_OK) {
        CHECK(!all && offsets[0] == 77);
        return status;
    }
    for (int rank = 0; rank < boot.size; rank++) {
        CHECK(offsets[rank] == end);
        for (size_t i = 0; i < size_of(rank, round); i++)
            wrong += all[end + i] != byte_of(rank, round, i);
        end += size_of(rank, round);
    }
    CHECK(offsets[boot.size] == end);
    CHECK(wrong == 0);
    free(all);
    return status;
}

static void exchanges(void)
{
    open_context();
    for (int round = 0; round < 24; round++)
        CHECK(gather(round, LONG_US) == STEPAF_OK);
    CHECK(gather(0, INT64_MAX) == STEPAF_OK);
    boot.close(boot.self);
}

/* Nobody leaves a barrier before everybody has come to it: counted in a page that all see, also
 * where MPI takes the ranks for those of several hosts. */
static void barriers_hold(_Atomic int *board)
{
    open_context();
    CHECK(gather(0, LONG_US) == STEPAF_OK);
    for (int round = 1; round <= 300; round++) {
        stepaf_group_t group = round % 3 == 0
                                   ? STEPAF_GROUP_WORLD
                                   : (stepaf_group_t)(STEPAF_GROUP_ATTENTION + boot.rank % 2);
        int ranks[RANKS_MAX];
        int n = members(group, ranks);
        atomic_store(&board[boot.rank], round);
        CHECK(barrier(group, LONG_US) == STEPAF_OK);
        for (int i = 0; i < n; i++)
            CHECK(atomic_load(&board[ranks[i]]) >= round);
    }
    boot.close(boot.self);
}

static void expect_comm(stepaf_context_h ctx, stepaf_group_t group)
{
    MPI_Comm comm = MPI_COMM_SELF;
    MPI_Comm again = MPI_COMM_SELF;
    MPI_Errhandler handler;
    MPI_Errhandler world_handler;
    int rank = -1;
    int size = -1;
    int before = barriers_called;
    CHECK(stepaf_comm(ctx, group, &comm) == STEPAF_OK);
    if (stepaf_rank(ctx, group) < 0) {
        CHECK(comm == MPI_COMM_NULL);
        CHECK(barriers_called == before);
        return;
    }
    CHECK(barriers_called == before + 1);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    CHECK(rank == stepaf_rank(ctx, group) && size == stepaf_size(ctx, group));
    CHECK(stepaf_comm(ctx, group, &again) == STEPAF_OK && again == comm);
    CHECK(barriers_called == before + 1);
    CHECK(comm != MPI_COMM_WORLD);

    int sum = 0;
    MPI_Allreduce(&boot.rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < size; i++)
        sum -= stepaf_world_rank(ctx, group, i);
    CHECK(sum == 0);

    MPI_Comm_get_errhandler(comm, &handler);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &world_handler);
    CHECK(handler == world_handler);
}

static void communicators(void)
{
    stepaf_context_h ctx = open_context();
    MPI_Comm comm = MPI_COMM_SELF;
    CHECK(gather(0, LONG_US) == STEPAF_OK);
    expect_comm(ctx, STEPAF_GROUP_WORLD);
    expect_comm(ctx, STEPAF_GROUP_ATTENTION);
    expect_comm(ctx, STEPAF_GROUP_FFN);

    CHECK(stepaf_comm(ctx, (stepaf_group_t)3, &comm) == STEPAF_ERR_INVALID);
    CHECK(stepaf_comm(ctx, (stepaf_group_t)-1, &comm) == STEPAF_ERR_INVALID);
    CHECK(stepaf_comm(ctx, STEPAF_GROUP_WORLD, NULL) == STEPAF_ERR_INVALID);
    CHECK(stepaf_comm(NULL, STEPAF_GROUP_WORLD, &comm) == STEPAF_ERR_HANDLE);
    CHECK(stepaf_comm((stepaf_context_h)&comm, STEPAF_GROUP_WORLD, &comm) == STEPAF_ERR_HANDLE);
    boot.close(boot.self);
    CHECK(stepaf_comm(ctx, STEPAF_GROUP_WORLD, &comm) == STEPAF_ERR_HANDLE);
    CHECK(comm == MPI_COMM_SELF);
}

/* A member calls a barrier instead: who asks for the communicator is told in time, where MPI would
 * wait for ever. */
static void another_call(void)
{
    stepaf_context_h ctx = open_context();
    MPI_Comm comm = MPI_COMM_SELF;

    CHECK(gather(0, LONG_US) == STEPAF_OK);
    default_timeout_us = 200000;
    if (boot.rank == 0) {
        CHECK(barrier(STEPAF_GROUP_WORLD, LONG_US) == STEPAF_OK);
    } else {
        CHECK(stepaf_comm(ctx, STEPAF_GROUP_WORLD, &comm) == STEPAF_ERR_TIMEOUT);
        CHECK(strstr(last_text, "did not arrive in time"));
        CHECK(comm == MPI_COMM_SELF);
    }
    /* Then another does, who is not taken to have come by what it has sent before. */
    if (boot.rank == 1) {
        CHECK(barrier(STEPAF_GROUP_WORLD, LONG_US) == STEPAF_OK);
    } else {
        CHECK(stepaf_comm(ctx, STEPAF_GROUP_WORLD, &comm) == STEPAF_ERR_TIMEOUT);
        CHECK(comm == MPI_COMM_SELF);
    }
    /* And at last all call the same. */
    default_timeout_us = LONG_US;
    expect_comm(ctx, STEPAF_GROUP_WORLD);
    boot.close(boot.self);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void bad_communicators(void)
{
    stepaf_context_h ctx = (stepaf_context_h)&failures;
    MPI_Comm half;
    MPI_Comm inter;
    CHECK(stepaf_init_mpi(MPI_COMM_NULL, NULL, &ctx) == STEPAF_ERR_INVALID);
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, world_rank % 2 ? 0 : 1, 5, &inter);
    CHECK(stepaf_init_mpi(inter, NULL, &ctx) == STEPAF_ERR_INVALID);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    CHECK(ctx == (stepaf_context_h)&failures);

    init_result = STEPAF_ERR_SPLIT;
    CHECK(stepaf_init_mpi(MPI_COMM_WORLD, NULL, &ctx) == STEPAF_ERR_SPLIT);
    CHECK(ctx == (stepaf_context_h)&failures);
    init_result = STEPAF_OK;
}

/* More contexts one after the other than MPI has communicators, if they were not given back. */
static void many_contexts(void)
{
    for (int i = 0; i < 300; i++) {
        open_context();
        CHECK(gather(i % 2, LONG_US) == STEPAF_OK);
        boot.close(boot.self);
    }
}

/* Rank 0 is alone at the barrier of its group, then at the next: the first is a timeout, and the
 * group's barrier is gone for it. Other groups' are not. */
static void late_barrier(void)
{
    open_context();
    CHECK(gather(0, LONG_US) == STEPAF_OK);
    if (boot.rank == 0) {
        CHECK(barrier(STEPAF_GROUP_ATTENTION, 50000) == STEPAF_ERR_TIMEOUT);
        CHECK(strstr(last_text, "barrier: rank "));
        CHECK(strstr(last_text, "did not arrive in time"));
        CHECK(barrier(STEPAF_GROUP_ATTENTION, LONG_US) == STEPAF_ERR_BOOT);
    }
    CHECK(barrier(STEPAF_GROUP_WORLD, LONG_US) == STEPAF_OK);
    CHECK(gather(1, LONG_US) == STEPAF_OK);
    boot.close(boot.self);
}

/* Rank 0 gives up an exchange before anybody else has come. The others come later, and find what
 * it had begun, with its data still there; what it never began they give up, too. */
static void late_exchange(int round, int times_before, stepaf_status_t others)
{
    open_context();
    for (int i = 0; i < times_before; i++)
        CHECK(gather(0, LONG_US) == STEPAF_OK);
    if (boot.rank == 0) {
        CHECK(gather(round, 50000) == STEPAF_ERR_TIMEOUT);
        CHECK(gather(round, LONG_US) == STEPAF_ERR_BOOT);
        boot.close(boot.self);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (boot.rank != 0) {
        CHECK(gather(round, others == STEPAF_OK ? LONG_US : 300000) == others);
        boot.close(boot.self);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The others sleep meanwhile: a barrier of MPI takes a core each. */
static void sleep_until_two_are_through(_Atomic int *board)
{
    enum { THROUGH = 1000, STEP_NS = 10000000 };
    int64_t limit = LONG_US / (STEP_NS / 1000);

    if (boot.rank < 2)
        atomic_store(&board[boot.rank], THROUGH);
    while ((atomic_load(&board[0]) != THROUGH || atomic_load(&board[1]) != THROUGH) && limit--)
        nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
}

/* Two ranks wait for others, and each knows of the other that it does. The others come in the end to
 * what these two have begun, since MPI allows nothing else. */
static void missing_ranks(_Atomic int *board, int times_before)
{
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (boot.rank < 2)
        atomic_store(&board[boot.rank], 0);
    MPI_Barrier(MPI_COMM_WORLD);
    open_on(comm);
    for (int i = 0; i < times_before; i++)
        CHECK(gather(0, LONG_US) == STEPAF_OK);
    if (boot.rank == 0 || boot.rank == 1) {
        CHECK(gather(0, boot.rank ? 3500000 : 2000000) == STEPAF_ERR_TIMEOUT);
        /* Rank 1 may be off its core for long. */
        CHECK(boot.rank ||
              (strstr(last_text, "no word from rank ") && strstr(last_text, "2, 3, 4")));
    }
    sleep_until_two_are_through(board);
    if (boot.rank > 1 && !times_before)
        CHECK(gather(0, 300000) == STEPAF_ERR_TIMEOUT);
    boot.close(boot.self);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void bad_arguments(void)
{
    open_context();
    int nobody = (boot.rank + 1) % boot.size;
    CHECK(boot.barrier(boot.self, STEPAF_GROUP_WORLD, &boot.rank, 1, 0) == STEPAF_ERR_BOOT);
    CHECK(gather(0, LONG_US) == STEPAF_OK);
    CHECK(boot.barrier(boot.self, (stepaf_group_t)3, &boot.rank, 1, 0) == STEPAF_ERR_INVALID);
    CHECK(boot.barrier(boot.self, STEPAF_GROUP_FFN, &boot.rank, 0, 0) == STEPAF_ERR_INVALID);
    CHECK(boot.barrier(boot.self, STEPAF_GROUP_FFN, &nobody, 1, 0) == STEPAF_ERR_INVALID);
    CHECK(boot.barrier(boot.self, STEPAF_GROUP_FFN, &boot.rank, 1, 0) == STEPAF_OK);
    boot.close(boot.self);
}

/* MPI would end the process. */
static void after_finalize(void)
{
    for (int i = 0; i < 2; i++) {
        CHECK(barrier(STEPAF_GROUP_WORLD, LONG_US) == STEPAF_ERR_BOOT);
        CHECK(strstr(last_text, "barrier: MPI_Finalize has already been called"));
        CHECK(gather(0, LONG_US) == STEPAF_ERR_BOOT);
        CHECK(strstr(last_text, "exchange: MPI_Finalize has already been called"));
    }
    boot.close(boot.self);
}

int main(int argc, char **argv)
{
    stepaf_context_h ctx = NULL;
    struct hs_job job = {0};
    int all = 0;
    if (argc > 1 || !hs_launch_found()) {
        printf("skipped: needs to be started by a launcher\n");
        return 77;
    }
    hs_catch_crashes();
    CHECK(stepaf_init_mpi(MPI_COMM_WORLD, NULL, &ctx) == STEPAF_ERR_INVALID);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    if (job.size < 4 || job.size > RANKS_MAX) {
        printf("runs on 4 to %d ranks\n", RANKS_MAX);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    job.rank = world_rank;
    hs_mpi_share_page(&job);
    exchanges();
    barriers_hold(job.shared->arrived);
    communicators();
    another_call();
    bad_communicators();
    bad_arguments();
    many_contexts();
    late_barrier();
    missing_ranks(job.shared->arrived, 1);
    missing_ranks(job.shared->arrived, 0); /* while the communicator is duplicated */
    late_exchange(0, 1, STEPAF_OK);
    late_exchange(2, 1, STEPAF_ERR_TIMEOUT); /* takes a second collective */
    late_exchange(0, 0, STEPAF_ERR_TIMEOUT); /* begins with the duplicate of the communicator */

    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0)
        printf("%d failures\n", all);
    open_context();
    gather(0, LONG_US);
    MPI_Finalize();
    int before = failures;
    after_finalize();
    CHECK(stepaf_init_mpi(MPI_COMM_WORLD, NULL, &ctx) == STEPAF_ERR_INVALID);
    return all != 0 || failures != before;
}
