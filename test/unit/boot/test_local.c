/* SPDX-License-Identifier: Apache-2.0 */
/* The local bootstrap: exchanges and barriers between forked processes, and between threads (which
 * is how a race detector gets to see them), and what happens when somebody does not come. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/boot.h>

#include "boot/boot_local.h"
#include "ranks.h"
#include "unit.h"

enum { SECOND_US = 1000000, LONG_US = 20 * SECOND_US, ENDLESS_US = 600 * SECOND_US };

/* Ranks as processes, which have one thread each: a race detector sees nothing in them, and makes
 * many take long. */
static void in_processes(int size, rank_body_t body, void *arg)
{
#ifdef __SANITIZE_THREAD__
    if (size > 1)
        return;
#endif
    ranks_expect_processes(size, body, arg);
}

/* Bytes of rank @a rank in round @a round: none, one, a few, or up to megabytes. */
static size_t size_of(int rank, int round)
{
    static const size_t sizes[] = {0, 1, 7, 100, 4096, 65537, 3 << 20};
    return sizes[(size_t)(rank * 3 + round) % (sizeof sizes / sizeof *sizes)];
}

/* What all bytes are cut out of; each rank's begin somewhere else in each round. */
static unsigned char pattern[(3 << 20) + 1024];

static const unsigned char *bytes_of(int rank, int round)
{
    return pattern + rank * 7 + round * 13;
}

static void make_pattern(void)
{
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (unsigned char)(i * 31 + i / 251);
}

static int gather_once(const stepaf_boot_t *boot, int round)
{
    size_t offsets[RANKS_MAX + 1];
    size_t bytes = size_of(boot->rank, round);
    size_t end = 0;
    unsigned char *all = NULL;

    stepaf_status_t status = boot->allgather(boot->self, bytes ? bytes_of(boot->rank, round) : NULL,
                                             bytes, (void **)&all, offsets, LONG_US);
    RANK_CHECK(boot, status == STEPAF_OK);
    for (int rank = 0; rank < boot->size; rank++) {
        RANK_CHECK(boot, offsets[rank] == end);
        end += size_of(rank, round);
        RANK_CHECK(boot, offsets[rank + 1] == end);
        RANK_CHECK(boot,
                   memcmp(all + offsets[rank], bytes_of(rank, round), size_of(rank, round)) == 0);
    }
    free(all);
    return 0;
}

static int gather_many(const stepaf_boot_t *boot, void *arg)
{
    for (int round = 0; round < *(int *)arg; round++)
        if (gather_once(boot, round))
            return 1;
    return 0;
}

static void exchanges(void)
{
    int rounds = 14;
    in_processes(1, gather_many, &rounds);
    in_processes(2, gather_many, &rounds);
    in_processes(3, gather_many, &rounds);
    ranks_expect_threads(4, gather_many, &rounds);
    rounds = 3;
    in_processes(RANKS_MAX, gather_many, &rounds);
}

static int gather_nothing(const stepaf_boot_t *boot, void *arg)
{
    size_t offsets[RANKS_MAX + 1];
    void *all = NULL;
    (void)arg;
    RANK_CHECK(boot, boot->allgather(boot->self, NULL, 0, &all, offsets, LONG_US) == STEPAF_OK);
    RANK_CHECK(boot, all);
    for (int rank = 0; rank <= boot->size; rank++)
        RANK_CHECK(boot, offsets[rank] == 0);
    free(all);
    return 0;
}

static void exchange_of_nothing(void)
{
    in_processes(1, gather_nothing, NULL);
    in_processes(5, gather_nothing, NULL);
}

/* Counters in memory that the ranks share: a barrier holds if nobody sees one behind its own. */
struct board {
    _Atomic int rounds[RANKS_MAX];
};

static struct board *make_board(void)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CU_ASSERT_FATAL(board != MAP_FAILED);
    return board;
}

static int barriers_hold(const stepaf_boot_t *boot, void *arg)
{
    struct board *board = arg;
    int ranks[RANKS_MAX];
    for (int i = 0; i < boot->size; i++)
        ranks[i] = i;
    for (int round = 1; round <= 300; round++) {
        board->rounds[boot->rank] = round;
        RANK_CHECK(boot, boot->barrier(boot->self, STEPAF_GROUP_WORLD, ranks, boot->size,
                                       LONG_US) == STEPAF_OK);
        for (int i = 0; i < boot->size; i++)
            RANK_CHECK(boot, board->rounds[i] == round || board->rounds[i] == round + 1);
    }
    return 0;
}

/* Even ranks and odd ranks, each by themselves and at their own pace, with exchanges of all in
 * between. */
static int groups_are_apart(const stepaf_boot_t *boot, void *arg)
{
    struct board *board = arg;
    int odd = boot->rank % 2;
    int ranks[RANKS_MAX];
    int n = 0;
    for (int i = odd; i < boot->size; i += 2)
        ranks[n++] = i;
    for (int round = 1; round <= 60; round++) {
        board->rounds[boot->rank] = round;
        stepaf_group_t group = odd ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;
        RANK_CHECK(boot, boot->barrier(boot->self, group, ranks, n, LONG_US) == STEPAF_OK);
        for (int i = 0; i < n; i++)
            RANK_CHECK(boot, board->rounds[ranks[i]] >= round);
        if (round % 20 == 0 && gather_nothing(boot, NULL))
            return 1;
    }
    return 0;
}

static void barriers(void)
{
    struct board *board = make_board();
    in_processes(1, barriers_hold, board);
    memset(board, 0, sizeof *board);
    in_processes(3, barriers_hold, board);
    memset(board, 0, sizeof *board);
    ranks_expect_threads(4, barriers_hold, board);
    memset(board, 0, sizeof *board);
    in_processes(5, groups_are_apart, board);
    memset(board, 0, sizeof *board);
    ranks_expect_threads(4, groups_are_apart, board);
    munmap(board, sizeof *board);
}

static int facts_are_right(const stepaf_boot_t *boot, void *arg)
{
    RANK_CHECK(boot, strcmp(boot->name, "local") == 0);
    RANK_CHECK(boot, boot->size == *(int *)arg);
    RANK_CHECK(boot, boot->rank >= 0 && boot->rank < boot->size);
    RANK_CHECK(boot, boot->app_number == boot->rank % 2);
    return 0;
}

static void facts_and_bad_arguments(void)
{
    stepaf_boot_local_t *local = NULL;
    stepaf_boot_t boot = {.rank = 77};
    int size = 3;
    in_processes(size, facts_are_right, &size);

    static const int bad_sizes[] = {0, -1, 1025};
    for (size_t i = 0; i < sizeof bad_sizes / sizeof *bad_sizes; i++)
        CU_ASSERT_EQUAL(stepaf_boot_local_create(bad_sizes[i], &local), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_boot_local_create(1, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_PTR_NULL(local);

    CU_ASSERT_EQUAL_FATAL(stepaf_boot_local_create(1024, &local), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_boot_local_attach(NULL, 0, -1, &boot), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_boot_local_attach(local, 0, -1, NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_boot_local_attach(local, -1, -1, &boot), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_boot_local_attach(local, 1024, -1, &boot), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(boot.rank, 77);
    CU_ASSERT_EQUAL_FATAL(stepaf_boot_local_attach(local, 1023, -5, &boot), STEPAF_OK);
    CU_ASSERT_EQUAL(boot.app_number, -1);
    CU_ASSERT_EQUAL(boot.barrier(boot.self, (stepaf_group_t)3, &(int){1023}, 1, 0),
                    STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(boot.barrier(boot.self, (stepaf_group_t)-1, &(int){1023}, 1, 0),
                    STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(boot.barrier(boot.self, STEPAF_GROUP_FFN, &(int){1023}, 0, 0),
                    STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(boot.barrier(boot.self, STEPAF_GROUP_FFN, &(int){1023}, 1, 0), STEPAF_OK);
    boot.close(boot.self);
    stepaf_boot_local_destroy(local);
    stepaf_boot_local_destroy(NULL);
}

/* The victim comes to one exchange and no more, or not even to that. The others are told who has
 * ended long before their deadline, and cannot use the bootstrap's exchange afterwards. */
static int victim_dies(const stepaf_boot_t *boot, void *arg)
{
    int victim = *(int *)arg % 3;
    size_t offsets[RANKS_MAX + 1] = {77};
    void *all = NULL;
    if (*(int *)arg < 3 && gather_once(boot, 1))
        return 1;
    if (boot->rank == victim)
        kill(getpid(), SIGKILL);

    for (int i = 0; i < 3; i++) {
        RANK_CHECK(boot, boot->allgather(boot->self, "x", 1, &all, offsets, ENDLESS_US) ==
                             STEPAF_ERR_PEER_LOST);
        RANK_CHECK(boot, stepaf_last_error()->peer_world_rank == victim);
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, "has ended"));
    }
    RANK_CHECK(boot, !all && offsets[0] == 77);
    return 0;
}

static void dead_rank_is_named_at_once(void)
{
    for (int victim = 0; victim < 6; victim++) {
        int statuses[RANKS_MAX];
        ranks_run(3, victim_dies, &victim, statuses);
        for (int rank = 0; rank < 3; rank++) {
            if (rank == victim % 3)
                CU_ASSERT(WIFSIGNALED(statuses[rank]) && WTERMSIG(statuses[rank]) == SIGKILL)
            else
                CU_ASSERT_EQUAL(statuses[rank], 0);
        }
    }
}

/* Who is done with the bootstrap, and lives. */
static int one_leaves(const stepaf_boot_t *boot, void *arg)
{
    static const int ranks[] = {0, 1};
    struct board *board = arg;

    if (boot->rank == 1) {
        stepaf_boot_local_destroy(((struct member *)boot->self)->local);
        while (!board->rounds[0])
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        _exit(0);
    }
    RANK_CHECK(boot, boot->barrier(boot->self, STEPAF_GROUP_WORLD, ranks, 2, ENDLESS_US) ==
                         STEPAF_ERR_PEER_LOST);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "barrier: world rank 1 has finalized"));
    board->rounds[0] = 1;
    return 0;
}

static void who_leaves_is_named(void)
{
    struct board *board = make_board();

    in_processes(2, one_leaves, board);
    munmap(board, sizeof *board);
}

/* Children of a rank come and go, with and without all that it has given up, before it comes. */
static int one_forks(const stepaf_boot_t *boot, void *arg)
{
    (void)arg;
    for (int i = 0; i < 4 && boot->rank == 1; i++) {
        pid_t child = fork();
        if (child == 0 && i % 2)
            stepaf_boot_local_destroy(((struct member *)boot->self)->local);
        if (child == 0)
            _exit(0);
        RANK_CHECK(boot, waitpid(child, NULL, 0) == child);
        nanosleep(&(struct timespec){0, 40000000}, NULL); /* for the other to look */
    }
    return gather_once(boot, 1);
}

static void who_forks_goes_on(void)
{
    in_processes(2, one_forks, NULL);
}

/* Whoever has attached forks who is to be the rank. */
static int child_comes(const stepaf_boot_t *boot, void *arg)
{
    int status = 0;

    (void)arg;
    pid_t child = boot->rank == 1 ? fork() : 0;
    if (child)
        return waitpid(child, &status, 0) != child || status;
    int failed = gather_once(boot, 1) || gather_once(boot, 2);
    if (boot->rank == 1)
        _exit(failed);
    return failed;
}

static void a_child_may_be_the_rank(void)
{
    in_processes(3, child_comes, NULL);
}

/* Rank 1 never comes to the barrier: rank 0 is told its name, that group is broken for those who
 * come later, and the others are not. */
static int barrier_times_out(const stepaf_boot_t *boot, void *arg)
{
    static const int ranks[] = {0, 1};
    (void)arg;
    if (boot->rank == 0) {
        RANK_CHECK(boot, boot->barrier(boot->self, STEPAF_GROUP_WORLD, ranks, 2, 50000) ==
                             STEPAF_ERR_TIMEOUT);
        RANK_CHECK(boot, stepaf_last_error()->peer_world_rank == 1);
        RANK_CHECK(boot, stepaf_last_error()->phase == STEPAF_PHASE_BARRIER);
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, "barrier: world rank 1"));
    }
    if (gather_nothing(boot, NULL))
        return 1;
    RANK_CHECK(boot,
               boot->barrier(boot->self, STEPAF_GROUP_WORLD, ranks, 2, LONG_US) == STEPAF_ERR_BOOT);
    RANK_CHECK(boot, boot->barrier(boot->self, STEPAF_GROUP_FFN, ranks, 2, LONG_US) == STEPAF_OK);
    return 0;
}

/* A timeout of 0 is a poll, a negative one nothing else. */
static int polls_return_at_once(const stepaf_boot_t *boot, void *arg)
{
    static const int ranks[] = {0, 1};
    (void)arg;
    if (boot->rank == 0) {
        RANK_CHECK(boot, boot->barrier(boot->self, STEPAF_GROUP_WORLD, ranks, 2, 0) ==
                             STEPAF_ERR_TIMEOUT);
        RANK_CHECK(boot,
                   boot->barrier(boot->self, STEPAF_GROUP_FFN, ranks, 2, -1) == STEPAF_ERR_TIMEOUT);
    }
    return gather_nothing(boot, NULL);
}

static void barriers_time_out(void)
{
    in_processes(2, barrier_times_out, NULL);
    ranks_expect_threads(2, barrier_times_out, NULL);
    in_processes(2, polls_return_at_once, NULL);
}

/* An endless timeout must not overflow into one that has passed. */
static int longest_timeout_is_long(const stepaf_boot_t *boot, void *arg)
{
    static const int ranks[] = {0, 1};
    (void)arg;
    if (boot->rank == 0)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    RANK_CHECK(boot,
               boot->barrier(boot->self, STEPAF_GROUP_WORLD, ranks, 2, INT64_MAX) == STEPAF_OK);
    return 0;
}

static void longest_timeout(void)
{
    in_processes(2, longest_timeout_is_long, NULL);
}

/* The shared file gives its memory back after each exchange. */
static int file_is_empty_between(const stepaf_boot_t *boot, void *arg)
{
    static const int ranks[] = {0, 1};
    (void)arg;
    if (gather_many(boot, &(int){8}))
        return 1;
    RANK_CHECK(boot, boot->barrier(boot->self, STEPAF_GROUP_WORLD, ranks, 2, LONG_US) == STEPAF_OK);
    for (int fd = 3; fd < 64; fd++) {
        char link[64];
        char name[64] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, name, sizeof name - 1) > 0 && strstr(name, "stepaf-boot"))
            RANK_CHECK(boot, lseek(fd, 0, SEEK_END) == 0);
    }
    return 0;
}

static void memory_is_given_back(void)
{
    in_processes(2, file_is_empty_between, NULL);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"facts and bad arguments", facts_and_bad_arguments},
        {"exchanges", exchanges},
        {"exchange of nothing", exchange_of_nothing},
        {"barriers", barriers},
        {"dead rank is named at once", dead_rank_is_named_at_once},
        {"who leaves is named", who_leaves_is_named},
        {"who forks goes on", who_forks_goes_on},
        {"a child may be the rank", a_child_may_be_the_rank},
        {"barriers time out", barriers_time_out},
        {"longest timeout", longest_timeout},
        {"memory is given back", memory_is_given_back},
        CU_TEST_INFO_NULL,
    };
    make_pattern();
    return unit_run(tests);
}
