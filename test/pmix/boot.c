/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap on PMIx by itself: exchanges of all sizes, barriers of groups, deadlines, several
 * contexts, and what the launcher reports. The core is played by the few functions below, so that
 * the bootstrap's own can be called, and each can be left waiting. On 4 or more ranks. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/pmix.h>

enum { RANKS_MAX = 16, LONG_US = 20000000, SHORT_US = 300000 };

/* ---- the core, as far as libstepaf_pmix needs it ---- */

static stepaf_boot_t boot;
static stepaf_status_t init_result;
static char last_text[STEPAF_ERROR_TEXT_MAX];

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

/* ---- checks ---- */

static int failures;

#define CHECK(condition_)                                                                        \
    do {                                                                                         \
        if (!(condition_)) {                                                                     \
            fprintf(stderr, "[rank %d] %s:%d: not so: %s (%s)\n", boot.rank, __FILE__, __LINE__, \
                    #condition_, last_text);                                                     \
            failures++;                                                                          \
        }                                                                                        \
    } while (0)

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* What the ranks show each other apart from the bootstrap. */
static struct board {
    _Atomic int round[RANKS_MAX];
    _Atomic int failures;
} * board;

static stepaf_boot_t open_context(void)
{
    stepaf_context_h ctx = NULL;
    CHECK(stepaf_init_pmix(NULL, &ctx) == STEPAF_OK);
    CHECK(strcmp(boot.name, "pmix") == 0);
    return boot;
}

static int members(stepaf_group_t group, int *ranks)
{
    int n = 0;
    for (int rank = 0; rank < boot.size; rank++)
        if (group == STEPAF_GROUP_WORLD || (rank % 2 == 1) == (group == STEPAF_GROUP_FFN))
            ranks[n++] = rank;
    return n;
}

static stepaf_status_t barrier(stepaf_group_t group, int64_t timeout_us)
{
    int ranks[RANKS_MAX];
    int n = members(group, ranks);
    return boot.barrier(boot.self, group, ranks, n, timeout_us);
}

static size_t size_of(int rank, int round)
{
    static const size_t sizes[] = {0,   1,     (1 << 20) - 16, 1 << 20, (1 << 20) + 1,
                                   300, 70000, 3 << 20};
    if (round % 2 == 0)
        return (size_t)(rank * 17 + round) % 1025;
    return sizes[(size_t)(rank + round) % (sizeof sizes / sizeof *sizes)];
}

static unsigned char byte_of(int rank, int round, size_t i)
{
    return (unsigned char)(i * 31 + i / 251 + (size_t)rank * 7 + (size_t)round * 13);
}

static stepaf_status_t gather(const stepaf_boot_t *by, int round, int64_t timeout_us)
{
    size_t offsets[RANKS_MAX + 1] = {77};
    size_t bytes = size_of(by->rank, round), end = 0, wrong = 0;
    unsigned char *all = NULL, *mine = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        mine[i] = byte_of(by->rank, round, i);
    stepaf_status_t status =
        by->allgather(by->self, bytes ? mine : NULL, bytes, (void **)&all, offsets, timeout_us);
    memset(mine, 0xee, bytes + 1);
    free(mine);
    if (status != STEPAF_OK) {
        CHECK(!all && offsets[0] == 77);
        return status;
    }
    for (int rank = 0; rank < by->size; rank++) {
        CHECK(offsets[rank] == end);
        for (size_t i = 0; i < size_of(rank, round); i++)
            wrong += all[end + i] != byte_of(rank, round, i);
        end += size_of(rank, round);
    }
    CHECK(offsets[by->size] == end);
    CHECK(wrong == 0);
    free(all);
    return status;
}

/* Make the board: rank 0's memory, which the others open by process and descriptor. */
static void share_board(void)
{
    int where[2] = {getpid(), memfd_create("test-board", MFD_CLOEXEC)};
    size_t offsets[RANKS_MAX + 1];
    char path[64];
    int *all = NULL;

    open_context();
    if (ftruncate(where[1], sizeof *board) != 0)
        exit(99);
    if (boot.allgather(boot.self, where, sizeof where, (void **)&all, offsets, LONG_US) != 0) {
        fprintf(stderr, "the first exchange: %s\n", last_text);
        exit(1);
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", all[0], all[1]);
    FILE *file = fopen(path, "r+");
    board = file ? mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0)
                 : MAP_FAILED;
    if (board == MAP_FAILED) {
        printf("skipped: the ranks are not all on one host\n");
        exit(77);
    }
    fclose(file);
    free(all);
    CHECK(barrier(STEPAF_GROUP_WORLD, LONG_US) == STEPAF_OK);
    close(where[1]);
    boot.close(boot.self);
}

/* Also across a close of the last context, after which PMIx begins anew. */
static void exchanges(void)
{
    open_context();
    for (int round = 0; round < 10; round++)
        CHECK(gather(&boot, round, LONG_US) == STEPAF_OK);
    CHECK(gather(&boot, 0, INT64_MAX) == STEPAF_OK);
    boot.close(boot.self);
}

/* Two contexts, in use by turns and closed in another order. */
static void several_contexts(void)
{
    stepaf_boot_t first = open_context(), second = open_context();
    CHECK(first.self != second.self);
    for (int round = 0; round < 4; round++) {
        CHECK(gather(&first, round, LONG_US) == STEPAF_OK);
        CHECK(gather(&second, round + 1, LONG_US) == STEPAF_OK);
    }
    first.close(first.self);
    CHECK(gather(&second, 2, LONG_US) == STEPAF_OK);
    second.close(second.self);
}

/* Nobody leaves a barrier before everybody has come to it. */
static void barriers_hold(void)
{
    open_context();
    for (int round = 1; round <= 18; round++) {
        stepaf_group_t group = round % 3 == 0
                                   ? STEPAF_GROUP_WORLD
                                   : (stepaf_group_t)(STEPAF_GROUP_ATTENTION + boot.rank % 2);
        int ranks[RANKS_MAX];
        int n = members(group, ranks);
        board->round[boot.rank] = round;
        CHECK(barrier(group, LONG_US) == STEPAF_OK);
        for (int i = 0; i < n; i++)
            CHECK(board->round[ranks[i]] >= round);
    }
    boot.close(boot.self);
}

/* What one rank cannot put, all refuse. */
static void too_large(void)
{
    size_t offsets[RANKS_MAX + 1];
    size_t bytes = 0;
    char *data = NULL;
    void *all = NULL;

    open_context();
    if (boot.rank == 1) {
        bytes = (16u << 20) + 1;
        data = calloc(1, bytes);
    }
    CHECK(boot.allgather(boot.self, data, bytes, &all, offsets, LONG_US) == STEPAF_ERR_LIMIT);
    CHECK(strstr(last_text, "rank 1 has 16777217 bytes") != NULL);
    CHECK(gather(&boot, 0, LONG_US) == STEPAF_ERR_BOOT);
    free(data);
    boot.close(boot.self);
}

static void wait_for(int value)
{
    int64_t limit_us = now_us() + LONG_US;
    for (int rank = 0; rank < boot.size; rank++)
        while (board->round[rank] < value && now_us() < limit_us)
            usleep(1000);
}

/* The last rank comes when the others' deadlines have passed. The exchange's is @a timeout_us: a
 * server answers with all that is in it by now, so that in a short one nobody need be found, but
 * never somebody else. @a base is above all rounds so far. */
static void late(int base, int64_t timeout_us)
{
    int is_late;
    open_context();
    is_late = boot.rank == boot.size - 1;
    board->round[boot.rank] = is_late ? base + 1001 : base + 1000;
    wait_for(base + 1000);
    for (int what = 0; what < 2; what++) {
        if (is_late) {
            board->round[boot.rank] = base + 2000 + what;
            wait_for(base + 2000 + what);
        }
        int64_t began_us = now_us();
        /* The late one has the time to end what the others have given up, or the next would be
         * taken for it. */
        int64_t limit_us = is_late ? LONG_US : what ? SHORT_US : timeout_us;
        stepaf_status_t status =
            what ? barrier(STEPAF_GROUP_WORLD, limit_us) : gather(&boot, 0, limit_us);
        if (is_late) {
            board->round[boot.rank] = base + 2500 + what;
        } else {
            char who[64];
            snprintf(who, sizeof who, "rank %d did not arrive in time", boot.size - 1);
            CHECK(status == STEPAF_ERR_TIMEOUT);
            CHECK(
                what || strstr(last_text, who) ||
                (timeout_us == SHORT_US && strstr(last_text, "some rank did not arrive in time")));
            CHECK(now_us() - began_us >= limit_us && now_us() - began_us < 20 * limit_us);
            board->round[boot.rank] = base + 2000 + what;
            wait_for(base + 2000 + what);
            CHECK((what ? barrier(STEPAF_GROUP_WORLD, 0) : gather(&boot, 0, 0)) == STEPAF_ERR_BOOT);
        }
    }
    board->round[boot.rank] = base + 3000;
    wait_for(base + 3000);
    boot.close(boot.self);
}

static void bad_arguments(void)
{
    stepaf_context_h ctx = NULL;
    open_context();
    int nobody = (boot.rank + 1) % boot.size;
    CHECK(boot.barrier(boot.self, (stepaf_group_t)3, &boot.rank, 1, 0) == STEPAF_ERR_INVALID);
    CHECK(boot.barrier(boot.self, STEPAF_GROUP_FFN, &boot.rank, 0, 0) == STEPAF_ERR_INVALID);
    CHECK(boot.barrier(boot.self, STEPAF_GROUP_FFN, &nobody, 1, 0) == STEPAF_ERR_INVALID);
    CHECK(boot.barrier(boot.self, STEPAF_GROUP_FFN, &boot.rank, 1, LONG_US) == STEPAF_OK);
    boot.close(boot.self);
    init_result = STEPAF_ERR_SPLIT; /* handed on, and everything given back */
    CHECK(stepaf_init_pmix(NULL, &ctx) == STEPAF_ERR_SPLIT && ctx == NULL);
    init_result = STEPAF_OK;
}

/* Rank 0 reports of rank 1, as a launcher would, that it is gone. The others believe it; rank 1
 * knows better of itself. */
static void losses(void)
{
    pmix_proc_t self, gone;
    pmix_info_t info;
    int ranks[RANKS_MAX], n = 0, survivors[2] = {2, 3};
    int64_t limit_us;

    open_context();
    PMIx_Init(&self, NULL, 0); /* counted: only to learn the name space */
    CHECK(boot.lost(boot.self, ranks, RANKS_MAX) == 0);
    CHECK(barrier(STEPAF_GROUP_WORLD, LONG_US) == STEPAF_OK);
    board->round[boot.rank] = 6500; /* nobody is in the barrier any more, which would fail */
    if (boot.rank == 0) {
        wait_for(6500);
        PMIX_LOAD_PROCID(&gone, self.nspace, 1);
        PMIX_INFO_LOAD(&info, PMIX_EVENT_AFFECTED_PROC, &gone, PMIX_PROC);
        pmix_status_t code = PMIx_Notify_event(PMIX_ERR_PROC_ABORTED_BY_SIG, &self,
                                               PMIX_RANGE_LOCAL, &info, 1, NULL, NULL);
        CHECK(code == PMIX_SUCCESS || code == PMIX_OPERATION_SUCCEEDED);
        PMIX_INFO_DESTRUCT(&info);
    }
    limit_us = now_us() + (boot.rank == 1 ? SHORT_US : LONG_US);
    while (n == 0 && now_us() < limit_us)
        n = boot.lost(boot.self, ranks, RANKS_MAX);
    if (boot.rank == 1) {
        CHECK(n == 0);
    } else {
        CHECK(n == 1 && ranks[0] == 1);
        CHECK(boot.lost(boot.self, ranks, RANKS_MAX) == 0);
        int64_t began_us = now_us();
        CHECK(barrier(STEPAF_GROUP_WORLD, LONG_US) == STEPAF_ERR_PEER_LOST);
        CHECK(now_us() - began_us < LONG_US / 4);
        CHECK(strstr(last_text, "rank 1 died") != NULL);
        if (boot.rank == 2 || boot.rank == 3)
            CHECK(boot.barrier(boot.self, STEPAF_GROUP_FFN, survivors, 2, LONG_US) == STEPAF_OK);
    }
    board->round[boot.rank] = 7000;
    wait_for(7000);
    boot.close(boot.self);
    PMIx_Finalize(NULL, 0);
}

/* With an argument only what holds on every launcher: between Slurm's nodes a fence that was given
 * up leaves the next ones out of step, and what is reported stays on the node. */
int main(int argc, char **argv)
{
    (void)argv;
    if (!getenv("PMIX_RANK")) {
        printf("skipped: needs to be started by mpirun or srun --mpi=pmix\n");
        return 77;
    }
    share_board();
    if (boot.size < 4 || boot.size > RANKS_MAX) {
        printf("runs on 4 to %d ranks\n", RANKS_MAX);
        return 99;
    }
    exchanges();
    several_contexts();
    barriers_hold();
    too_large();
    bad_arguments();
    if (argc == 1) {
        late(0, SHORT_US);
        late(3000, 10 * SHORT_US);
        losses();
    }
    board->failures += failures;
    board->round[boot.rank] = 8000;
    wait_for(8000);
    if (boot.rank == 0)
        printf("%d failures\n", board->failures);
    return board->failures != 0;
}
