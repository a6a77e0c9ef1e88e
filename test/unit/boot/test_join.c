/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one machine that were started one by one: how they find each other, and what all are
 * told when that does not come about. */
#define _GNU_SOURCE 1 /* pipe2, unshare */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "joins.h"

enum { SKIPPED = 77 };

static void all_find_each_other(void)
{
    static const int sizes[] = {1, 2, 5, RANKS_MAX};
    struct rank ranks[RANKS_MAX];
    int before = count_fds();

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int late = 0; late < 3; late++) { /* nobody, rank 0, the last one */
            prepare(ranks, sizes[s], LONG_US);
            ranks[late == 1 ? 0 : sizes[s] - 1].delay_us = late ? 30000 : 0;
            run(ranks, sizes[s]);
            for (int i = 0; i < sizes[s]; i++)
                expect(&ranks[i], STEPAF_OK, "");
        }
    CU_ASSERT_EQUAL(count_fds(), before);
}

static void one_context_after_the_other(void)
{
    struct rank ranks[3];

    prepare(ranks, 3, LONG_US);
    for (int i = 0; i < 3; i++)
        ranks[i].rounds = 50;
    run(ranks, 3);
    for (int i = 0; i < 3; i++)
        expect(&ranks[i], STEPAF_OK, "");
}

static void who_is_missing_is_named(void)
{
    struct rank ranks[3];
    int64_t began_ns = stepaf_monotonic_ns();
    int before = count_fds();

    prepare(ranks, 3, LONG_US);
    ranks[0].timeout_us = SOME_US;
    run(ranks, 2);
    expect_of(&ranks[0], 2, STEPAF_ERR_TIMEOUT, "rank 2 did not arrive in time; 2 of 3 are here");
    expect_of(&ranks[1], 2, STEPAF_ERR_TIMEOUT, "rank 2 did not arrive in time; 2 of 3 are here");

    prepare(ranks, 3, SHORT_US);
    run(ranks + 1, 2);
    expect_of(&ranks[1], 0, STEPAF_ERR_TIMEOUT, "rank 0 did not arrive in time");
    expect(&ranks[2], STEPAF_ERR_TIMEOUT, "rank 0 did not arrive in time");
    CU_ASSERT(stepaf_monotonic_ns() - began_ns < LONG_US * 1000LL);
    CU_ASSERT_EQUAL(count_fds(), before);
}

static void await_fds(int n)
{
    int64_t limit_ns = stepaf_monotonic_ns() + LONG_US * 1000LL;

    while (count_fds() < n && stepaf_monotonic_ns() < limit_ns)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    CU_ASSERT_EQUAL(count_fds(), n);
}

/* Wait until rank 0 has let rank 1 in: both hold the two files, one the listener, and the
 * connection has two ends. */
static void await_the_first_two(int fds_before)
{
    await_fds(fds_before + 2 * STEPAF_LOCAL_FILES + 3);
}

/* A process that says it is @a rank of three, hears what rank 0 says to that, and no more. */
static int call_as(int rank)
{
    struct stepaf_join_hello hello = {
        .magic = STEPAF_JOIN_MAGIC, .layout = STEPAF_JOIN_LAYOUT, .rank = rank, .size = 3};
    struct stepaf_join join = {.rank = rank, .size = 3};
    struct stepaf_join_answer answer;
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(join.job, sizeof join.job, "%s", job_name);
    socklen_t bytes = stepaf_join_address(&join, &address);
    while (connect(fd, (struct sockaddr *)&address, bytes) != 0)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    CU_ASSERT_EQUAL(send(fd, &hello, sizeof hello, MSG_NOSIGNAL), (ssize_t)sizeof hello);
    CU_ASSERT_EQUAL(recv(fd, &answer, sizeof answer, 0), (ssize_t)sizeof answer);
    CU_ASSERT_EQUAL(answer.status, STEPAF_OK);
    return fd;
}

/* One has come and ended, before or after it has taken the files: no deadline of minutes is waited
 * for, also by one that comes only then. */
static void who_has_come_and_ended_is_named(void)
{
    struct rank ranks[3];
    int before = count_fds();

    for (int is_late = 0; is_late < 2; is_late++) {
        prepare(ranks, 3, ENDLESS_US);
        start(ranks, 1);
        int fd = call_as(2);
        if (is_late) {
            stepaf_join_say(fd, NULL, NULL);
            close(fd);
        }
        start(ranks + 1, 1);
        if (!is_late) {
            await_the_first_two(before + 2);
            close(fd);
        }
        finish(ranks, 2);
        for (int i = 0; i < 2; i++)
            expect_of(&ranks[i], 2, STEPAF_ERR_PEER_LOST,
                      "rank 2 has ended before all ranks had arrived");
    }
    CU_ASSERT_EQUAL(count_fds(), before);
}

/* One cannot take the files, and says why. */
static void who_cannot_join_says_why(void)
{
    const stepaf_error_t why = {.status = STEPAF_ERR_BOOT, .text = "of no room"};
    struct rank ranks[3];

    prepare(ranks, 3, ENDLESS_US);
    start(ranks, 2);
    int fd = call_as(2);
    stepaf_join_say(fd, &why, NULL);
    close(fd);
    finish(ranks, 2);
    for (int i = 0; i < 2; i++)
        expect_of(&ranks[i], 2, STEPAF_ERR_BOOT, "rank 2 cannot join: of no room");
}

/* Rank 0 may not have a descriptor for each: it says so, and does not wait. */
static void more_ranks_than_descriptors(void)
{
    struct rlimit before, few = {0};
    struct rank rank;

    CU_ASSERT_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){RANKS_MAX - 1, before.rlim_max};
    prepare(&rank, 1, ENDLESS_US);
    rank.size = RANKS_MAX;
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    run(&rank, 1);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    expect(&rank, STEPAF_ERR_BOOT, "ulimit -n");
}

/* Have as many descriptors on their way as an ordinary user may, in @a way_p, which they leave when
 * it is closed. False: there is no such limit. */
static bool crowd_the_way(int way_p[2])
{
    enum { AT_A_TIME = 32, TIMES = 64 };
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(AT_A_TIME * sizeof(int))];
    } control = {.head = {.cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS,
                          .cmsg_len = CMSG_LEN(AT_A_TIME * sizeof(int))}};
    struct iovec piece = {&(char){0}, 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};

    memset(CMSG_DATA(&control.head), 0, AT_A_TIME * sizeof(int)); /* standard input */
    if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){AT_A_TIME, AT_A_TIME}) != 0 ||
        (geteuid() == 0 && setuid(10000 + (uid_t)getpid() % 50000) != 0) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, way_p) != 0)
        return false;
    for (int i = 0; i < TIMES; i++)
        if (sendmsg(way_p[0], &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
            return errno == ETOOMANYREFS;
    return false;
}

/* Two ranks of a user who has no room for descriptors on their way, until @a makes_room. */
static int join_on_a_crowded_way(bool makes_room)
{
    const char *text = makes_room ? "" : "; cannot send the shared files to rank 1: Too many ref";
    stepaf_status_t status = makes_room ? STEPAF_OK : STEPAF_ERR_TIMEOUT;
    struct rank ranks[2];
    int way[2], wrong = 0;

    if (!crowd_the_way(way))
        return 0;
    int before = count_fds();
    prepare(ranks, 2, LONG_US);
    ranks[0].timeout_us = makes_room ? LONG_US : SHORT_US;
    start(ranks, 2);
    if (makes_room) {
        await_fds(before + STEPAF_LOCAL_FILES + 3);
        nanosleep(&(struct timespec){0, 20000000}, NULL); /* for rank 0 to find no room */
        close(way[0]);
        close(way[1]);
    }
    finish(ranks, 2);
    for (int i = 0; i < 2; i++) {
        wrong += ranks[i].status != status || !strstr(ranks[i].text, text);
        expect(&ranks[i], status, text);
    }
    return wrong;
}

static void a_crowded_way(void)
{
    int status;

    for (int makes_room = 0; makes_room < 2; makes_room++) {
        if (fork() == 0)
            _exit(join_on_a_crowded_way(makes_room));
        CU_ASSERT(wait(&status) > 0);
        CU_ASSERT_EQUAL(status, 0);
    }
}

/* Rank 0 ends after it has let one in. */
static void rank_0_ends(void)
{
    struct rank rank;
    int before = count_fds();
    pid_t host = fork();

    prepare(&rank, 1, ENDLESS_US);
    rank.size = 3;
    if (host == 0) {
        rank.timeout_us = LONG_US;
        run_rank(&rank);
        _exit(0);
    }
    int fd = call_as(2);
    rank.rank = 1;
    start(&rank, 1);
    await_fds(before + 2 + STEPAF_LOCAL_FILES); /* rank 1 is in */
    kill(host, SIGKILL);
    waitpid(host, NULL, 0);
    finish(&rank, 1);
    expect_of(&rank, 0, STEPAF_ERR_PEER_LOST, "rank 0 has ended before all ranks had arrived");
    close(fd);
}

/* A process that is @a number of three, forks a child as soon as it waits for others, and is killed.
 * The child lives until *hold_p is closed. */
static pid_t leave_a_child(int number, int *hold_p)
{
    struct rank rank;
    int hold[2], up[2];
    char byte = 0;

    CU_ASSERT_EQUAL_FATAL(pipe2(hold, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(hold[1]);
        int before = count_fds();
        prepare(&rank, 1, ENDLESS_US);
        rank.rank = number;
        rank.size = 3;
        start(&rank, 1);
        await_fds(before + 1 + STEPAF_LOCAL_FILES);
        if (pipe2(up, O_CLOEXEC) == 0 && fork() == 0)
            _exit(write(up[1], &byte, 1) != 1 || read(hold[0], &byte, 1) != 0);
        if (read(up[0], &byte, 1) == 1) /* the child has given up what it has to */
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    close(hold[0]);
    *hold_p = hold[1];
    return pid;
}

/* One has forked and is killed: its child does not stand for it. */
static void a_child_is_no_guest(void)
{
    struct rank rank;
    int hold;
    pid_t guest = leave_a_child(1, &hold);

    prepare(&rank, 1, LONG_US);
    rank.size = 3;
    run(&rank, 1);
    expect(&rank, STEPAF_ERR_PEER_LOST, "rank 1 has ended before all ranks had arrived");
    waitpid(guest, NULL, 0);
    close(hold);
}

/* The same of rank 0: its name is free again. */
static void a_child_is_no_host(void)
{
    struct rank ranks[3];
    int hold;
    pid_t host = leave_a_child(0, &hold);

    waitpid(host, NULL, 0);
    prepare(ranks, 3, LONG_US);
    run(ranks, 3);
    for (int i = 0; i < 3; i++)
        expect(&ranks[i], STEPAF_OK, "");
    close(hold);
}

/* What one has been told wrong, all hear of who are there. */
static void contradictions(void)
{
    struct rank ranks[3];
    int before = count_fds();

    prepare(ranks, 3, LONG_US);
    ranks[2].size = 4;
    start(ranks, 2);
    await_the_first_two(before);
    start(ranks + 2, 1);
    finish(ranks, 3);
    for (int i = 0; i < 3; i++)
        expect_of(&ranks[i], 2, STEPAF_ERR_BOOT,
                  "STEPAF_LOCAL_SIZE differs: 3 at rank 0, 4 at rank 2");

    prepare(ranks, 3, LONG_US);
    ranks[2].rank = 1;
    run(ranks, 3);
    for (int i = 0; i < 3; i++)
        expect_of(&ranks[i], 1, STEPAF_ERR_BOOT, "two processes are rank 1 (STEPAF_LOCAL_RANK)");
}

/* The one that is there twice does not stand for one that is only on its way. */
static void late_comers_hear_it(void)
{
    struct rank ranks[5];

    prepare(ranks, 5, LONG_US);
    for (int i = 0; i < 5; i++) {
        ranks[i].rank = i < 2 ? i : i - 1;
        ranks[i].size = 4;
    }
    ranks[3].delay_us = 50000;
    ranks[4].delay_us = 150000;
    run(ranks, 5);
    for (int i = 0; i < 5; i++)
        expect_of(&ranks[i], 1, STEPAF_ERR_BOOT, "two processes are rank 1 (STEPAF_LOCAL_RANK)");
}

static void refuse(struct stepaf_env env, const char *text)
{
    stepaf_boot_t boot = {.rank = 77};

    CU_ASSERT_EQUAL(stepaf_boot_join(&env, &boot), STEPAF_ERR_SETTING);
    CU_ASSERT_EQUAL(boot.rank, 77);
    UNIT_CONTAINS(stepaf_last_error()->text, text);
}

static void bad_settings(void)
{
    struct rank rank;
    struct stepaf_env env;

    prepare(&rank, 1, LONG_US);
    env = env_of(&rank);
    env.local_rank = 1;
    refuse(env, "STEPAF_LOCAL_RANK=1: ranks are 0 to 0 with STEPAF_LOCAL_SIZE=1");
    env.local_rank = 0;
    env.from_environment[STEPAF_ENV_LOCAL_RANK] = 0;
    refuse(env, "STEPAF_LOCAL_RANK is not set");
    env.local_size = 0;
    refuse(env, "STEPAF_LOCAL_SIZE is not set");
}

/* A whole job, as a shell would start it. */
static int one_process(int rank, const char *name)
{
    stepaf_context_h ctx = NULL;
    char number[12];

    snprintf(number, sizeof number, "%d", rank);
    if (name)
        setenv("STEPAF_LOCAL_JOB", name, 1);
    setenv("STEPAF_LOCAL_SIZE", "3", 1);
    setenv("STEPAF_LOCAL_RANK", number, 1);
    setenv("STEPAF_SPLIT", "attn=1,ffn=2", 1);
    if (stepaf_init(NULL, NULL, &ctx) != STEPAF_OK || stepaf_commit(ctx) != STEPAF_OK ||
        stepaf_barrier(ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) != STEPAF_OK)
        return 1;
    int wrong = stepaf_rank(ctx, STEPAF_GROUP_WORLD) != rank ||
                stepaf_size(ctx, STEPAF_GROUP_WORLD) != 3 ||
                stepaf_role(ctx) != (rank == 0 ? STEPAF_ATTENTION : STEPAF_FFN);
    stepaf_finalize(ctx);
    return wrong;
}

static void init_needs_no_launcher(void)
{
    int status;

    for (int rank = 0; rank < 3; rank++)
        if (fork() == 0)
            _exit(one_process(rank, job_name));
    for (int rank = 0; rank < 3; rank++) {
        CU_ASSERT(wait(&status) > 0);
        CU_ASSERT_EQUAL(status, 0);
    }
}

/* A session of its own for a job without a name: its exit code. */
static pid_t start_session(int first_byte, int to)
{
    pid_t child = fork();
    int status, failed = 0;

    if (child)
        return child;
    (void)setsid();
    for (int rank = 0; rank < 3; rank++) {
        if (fork() == 0)
            _exit(one_process(rank, NULL));
        if (rank || first_byte < 0)
            continue;
        (void)poll(NULL, 0, 100); /* it waits for the others now */
        char byte;
        failed += write(to, "x", 1) != 1 || read(first_byte, &byte, 1) != 1;
    }
    while (wait(&status) > 0)
        failed += status != 0;
    _exit(failed);
}

/* One starts and ends while rank 0 of the other waits. */
static void jobs_without_a_name_are_of_their_sessions(void)
{
    int go[2], is_waiting[2], status;
    char byte;

    CU_ASSERT_FATAL(!pipe2(go, O_CLOEXEC) && !pipe2(is_waiting, O_CLOEXEC));
    pid_t first = start_session(go[0], is_waiting[1]);
    CU_ASSERT_EQUAL(read(is_waiting[0], &byte, 1), 1);
    pid_t second = start_session(-1, -1);
    CU_ASSERT(waitpid(second, &status, 0) == second && status == 0);
    CU_ASSERT_EQUAL(write(go[1], "x", 1), 1);
    CU_ASSERT(waitpid(first, &status, 0) == first && status == 0);
    for (int i = 0; i < 2; i++) {
        close(go[i]);
        close(is_waiting[i]);
    }
}

/* A container that shares the network: its first process has the number 1, as in any other. Ends
 * with SKIPPED where no PID namespace can be made. */
static pid_t start_container(int first_byte, int to)
{
    pid_t child = fork();
    int status;

    if (child)
        return child;
    if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWPID : CLONE_NEWPID) != 0)
        _exit(SKIPPED);
    pid_t first = start_session(first_byte, to);
    _exit(first < 0 ? SKIPPED : waitpid(first, &status, 0) != first || status != 0);
}

static void jobs_without_a_name_are_of_their_containers(void)
{
    int go[2], is_waiting[2], status;
    char byte;

    CU_ASSERT_FATAL(!pipe2(go, O_CLOEXEC) && !pipe2(is_waiting, O_CLOEXEC));
    pid_t first = start_container(go[0], is_waiting[1]);
    close(is_waiting[1]);
    if (read(is_waiting[0], &byte, 1) == 1) {
        pid_t second = start_container(-1, -1);
        CU_ASSERT(waitpid(second, &status, 0) == second && status == 0);
        CU_ASSERT_EQUAL(write(go[1], "x", 1), 1);
        CU_ASSERT(waitpid(first, &status, 0) == first && status == 0);
    } else {
        CU_ASSERT(waitpid(first, &status, 0) == first && WEXITSTATUS(status) == SKIPPED);
    }
    close(go[0]);
    close(go[1]);
    close(is_waiting[0]);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"jobs without a name are of their sessions", jobs_without_a_name_are_of_their_sessions},
        {"jobs without a name are of their containers",
         jobs_without_a_name_are_of_their_containers},
        {"init needs no launcher", init_needs_no_launcher},
        {"all find each other", all_find_each_other},
        {"one context after the other", one_context_after_the_other},
        {"who is missing is named", who_is_missing_is_named},
        {"who has come and ended is named", who_has_come_and_ended_is_named},
        {"who cannot join says why", who_cannot_join_says_why},
        {"more ranks than descriptors", more_ranks_than_descriptors},
        {"a crowded way", a_crowded_way},
        {"rank 0 ends", rank_0_ends},
        {"a child is no guest", a_child_is_no_guest},
        {"a child is no host", a_child_is_no_host},
        {"contradictions", contradictions},
        {"late comers hear it", late_comers_hear_it},
        {"bad settings", bad_settings},
        CU_TEST_INFO_NULL,
    };
    snprintf(job_name, sizeof job_name, "test-%d", (int)getpid());
    return unit_run(tests);
}
