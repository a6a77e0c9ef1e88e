/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one machine that were started one by one: how they find each other, and what all are told
 * when that does not come about. Ranks are threads here, so that a race detector gets to see them. */
#define _GNU_SOURCE 1 /* memfd_create */

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/stepaf.h>

#include "base/time.h"
#include "boot/boot_join.h"
#include "unit.h"

/* SOME_US: for those who are there to find each other, whatever else the machine does. */
enum { RANKS_MAX = 16, LONG_US = 20000000, SOME_US = 3000000, SHORT_US = 300000 };

/* One rank: what it is told, and what became of it. */
struct rank {
    int rank, size;
    const char *job;
    int64_t timeout_us;
    int64_t delay_us; /* before it comes */
    int rounds;       /* contexts, one after the other */
    pthread_t thread;
    stepaf_status_t status;
    char text[STEPAF_ERROR_TEXT_MAX];
    int wrong; /* numbers in what it has gathered */
};

static char job_name[32];

static struct stepaf_env env_of(const struct rank *rank)
{
    struct stepaf_env env = {.boot = STEPAF_ENV_BOOT_AUTO,
                             .local_size = rank->size,
                             .local_rank = rank->rank,
                             .local_job = (char *)(uintptr_t)rank->job};
    env.from_environment[STEPAF_ENV_LOCAL_RANK] = 1;
    return env;
}

static stepaf_status_t use(struct rank *rank, stepaf_boot_t *boot)
{
    size_t offsets[RANKS_MAX + 1];
    int ranks[RANKS_MAX], number = 100 + rank->rank, *all = NULL;

    for (int i = 0; i < rank->size; i++)
        ranks[i] = i;
    for (int exchange = 0; exchange < 2; exchange++) {
        stepaf_status_t status = boot->allgather(boot->self, &number, sizeof number, (void **)&all,
                                                 offsets, rank->timeout_us);
        if (status != STEPAF_OK)
            return status;
        for (int i = 0; i < rank->size; i++)
            rank->wrong += all[i] != 100 + i;
        free(all);
    }
    return boot->barrier(boot->self, STEPAF_GROUP_WORLD, ranks, rank->size, rank->timeout_us);
}

static void *run_rank(void *arg)
{
    struct rank *rank = arg;
    struct stepaf_env env = env_of(rank);
    stepaf_boot_t boot;

    nanosleep(&(struct timespec){0, rank->delay_us * 1000}, NULL);
    for (int round = 0; round < rank->rounds && rank->status == STEPAF_OK; round++) {
        rank->status = stepaf_boot_join(&env, &boot);
        if (rank->status != STEPAF_OK)
            break;
        rank->status = use(rank, &boot);
        if (rank->status != STEPAF_OK)
            snprintf(rank->text, sizeof rank->text, "%s", stepaf_last_error()->text);
        boot.close(boot.self);
    }
    return NULL;
}

static void prepare(struct rank *ranks, int n, int64_t timeout_us)
{
    for (int i = 0; i < n; i++)
        ranks[i] = (struct rank){
            .rank = i, .size = n, .job = job_name, .timeout_us = timeout_us, .rounds = 1};
}

static void start(struct rank *ranks, int n)
{
    for (int i = 0; i < n; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
}

static void finish(struct rank *ranks, int n)
{
    for (int i = 0; i < n; i++)
        pthread_join(ranks[i].thread, NULL);
}

static void run(struct rank *ranks, int n)
{
    start(ranks, n);
    finish(ranks, n);
}

static void expect(const struct rank *rank, stepaf_status_t status, const char *text)
{
    CU_ASSERT_EQUAL(rank->status, status);
    if (rank->status != status)
        fprintf(stderr, "\n    rank %d: %s: %s\n", rank->rank, stepaf_status_name(rank->status),
                rank->text);
    UNIT_CONTAINS(rank->text, text);
    CU_ASSERT_EQUAL(rank->wrong, 0);
}

static int count_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int n = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(directory);
    while (readdir(directory))
        n++;
    closedir(directory);
    return n;
}

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
    expect(&ranks[0], STEPAF_ERR_TIMEOUT, "rank 2 did not come in time; 2 of 3 are here");
    expect(&ranks[1], STEPAF_ERR_TIMEOUT, "rank 2 did not come in time; 2 of 3 are here");

    prepare(ranks, 3, SHORT_US);
    run(ranks + 1, 2);
    expect(&ranks[1], STEPAF_ERR_TIMEOUT, "rank 0 did not come in time");
    expect(&ranks[2], STEPAF_ERR_TIMEOUT, "rank 0 did not come in time");
    CU_ASSERT(stepaf_monotonic_ns() - began_ns < LONG_US * 1000LL);
    CU_ASSERT_EQUAL(count_fds(), before);
}

/* Wait until rank 0 has let rank 1 in: it holds its two files and the listener, and the connection has
 * two ends. */
static void await_the_first_two(int fds_before)
{
    int64_t limit_ns = stepaf_monotonic_ns() + LONG_US * 1000LL;

    while (count_fds() < fds_before + STEPAF_LOCAL_FILES + 3 && stepaf_monotonic_ns() < limit_ns)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    CU_ASSERT_EQUAL(count_fds(), fds_before + STEPAF_LOCAL_FILES + 3);
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
        expect(&ranks[i], STEPAF_ERR_BOOT, "STEPAF_LOCAL_SIZE differs: 3 at rank 0, 4 at rank 2");

    prepare(ranks, 3, LONG_US);
    ranks[2].rank = 1;
    run(ranks, 3);
    for (int i = 0; i < 3; i++)
        expect(&ranks[i], STEPAF_ERR_BOOT, "two processes are rank 1 (STEPAF_LOCAL_RANK)");
}

static socklen_t address_of_job(struct sockaddr_un *address_p)
{
    struct stepaf_join join = {.rank = 0, .size = 2};
    snprintf(join.job, sizeof join.job, "%s", job_name);
    return stepaf_join_address(&join, address_p);
}

/* A socket at the job's name, as if this were its rank 0. */
static int listen_as_host(void)
{
    struct sockaddr_un address;
    socklen_t bytes = address_of_job(&address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&address, bytes), 0);
    CU_ASSERT_EQUAL_FATAL(listen(fd, 8), 0);
    return fd;
}

/* A connection to the job's name, as soon as there is somebody; then @a bytes of @a data. */
static int call_as_guest(const void *data, size_t bytes)
{
    struct sockaddr_un address;
    socklen_t address_bytes = address_of_job(&address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    while (connect(fd, (struct sockaddr *)&address, address_bytes) != 0 && errno == ECONNREFUSED)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    if (bytes)
        CU_ASSERT_EQUAL(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
    return fd;
}

static void two_jobs_of_one_name(void)
{
    struct rank rank;
    int fd = listen_as_host();

    prepare(&rank, 1, LONG_US);
    rank.size = 2;
    run(&rank, 1);
    expect(&rank, STEPAF_ERR_BOOT, "give each job a STEPAF_LOCAL_JOB of its own");
    close(fd);
}

static void strangers_change_nothing(void)
{
    static const char garbage[5000];
    struct stepaf_join_hello hello = {.magic = 1};
    struct rank ranks[3];
    int fds[3];

    prepare(ranks, 3, LONG_US);
    start(ranks, 1);
    fds[0] = call_as_guest(garbage, sizeof garbage);
    fds[1] = call_as_guest(&hello, sizeof hello);
    fds[2] = call_as_guest(NULL, 0);
    run(ranks + 1, 2);
    finish(ranks, 1);
    for (int i = 0; i < 3; i++) {
        expect(&ranks[i], STEPAF_OK, "");
        close(fds[i]);
    }
}

static void another_version_is_told(void)
{
    struct stepaf_join_hello hello = {
        .magic = STEPAF_JOIN_MAGIC, .layout = STEPAF_JOIN_LAYOUT + 1, .rank = 1, .size = 2};
    struct stepaf_join_answer answer = {0};
    struct rank rank;

    prepare(&rank, 1, LONG_US);
    rank.size = 2;
    start(&rank, 1);
    int fd = call_as_guest(&hello, sizeof hello);
    CU_ASSERT_EQUAL(recv(fd, &answer, sizeof answer, 0), sizeof answer);
    finish(&rank, 1);
    close(fd);
    expect(&rank, STEPAF_ERR_MISMATCH, "rank 1 has another version of libstepaf than rank 0");
    CU_ASSERT_EQUAL(answer.status, STEPAF_ERR_MISMATCH);
    UNIT_CONTAINS(answer.reason, "another version of libstepaf");
}

/* Answer the one guest of @a fd with two files. */
static void answer_with(int fd, uint32_t magic, const int files[2])
{
    struct stepaf_join_answer answer = {.magic = magic};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {.head = {.cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS,
                          .cmsg_len = CMSG_LEN(2 * sizeof(int))}};
    struct iovec piece = {&answer, sizeof answer};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = files ? &control : NULL,
                             .msg_controllen = files ? sizeof control : 0};
    if (files)
        memcpy(CMSG_DATA(&control.head), files, 2 * sizeof(int));
    struct stepaf_join_hello hello;
    int guest = accept(fd, NULL, NULL);
    /* What is closed before all has been read takes the answer with it. */
    CU_ASSERT_EQUAL(recv(guest, &hello, sizeof hello, 0), sizeof hello);
    CU_ASSERT_EQUAL(sendmsg(guest, &message, MSG_NOSIGNAL), sizeof answer);
    close(guest);
}

/* What rank 0 gives out is not mapped unless it is what it has to be, and for ever. */
static void files_are_not_trusted(void)
{
    int files[2] = {memfd_create("short", MFD_CLOEXEC), memfd_create("other", MFD_CLOEXEC)};
    int before = count_fds();
    struct rank rank;

    for (int what = 0; what < 3; what++) {
        int fd = listen_as_host();
        prepare(&rank, 1, what == 2 ? SHORT_US : LONG_US);
        rank.rank = 1;
        rank.size = 2;
        start(&rank, 1);
        answer_with(fd, what == 2 ? 7 : STEPAF_JOIN_MAGIC, what == 0 ? files : NULL);
        close(fd);
        finish(&rank, 1);
        if (what == 2) /* "come", or "gather all" if it was there at the last try */
            expect(&rank, STEPAF_ERR_TIMEOUT, "rank 0 did not ");
        else
            expect(&rank, STEPAF_ERR_BOOT, "what rank 0 shares is not made for 2 ranks");
    }
    CU_ASSERT_EQUAL(count_fds(), before);
    close(files[0]);
    close(files[1]);
}

/* Somebody else has taken the name. Only root can be somebody else. */
static void another_users_name(void)
{
    int ready[2];
    struct rank rank;
    char byte;

    if (geteuid() != 0)
        return;
    CU_ASSERT_EQUAL_FATAL(pipe(ready), 0);
    pid_t other = fork();
    if (other == 0) {
        struct sockaddr_un address;
        socklen_t bytes = address_of_job(&address);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (setuid(65534) != 0 || bind(fd, (struct sockaddr *)&address, bytes) != 0 ||
            listen(fd, 8) != 0 || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    CU_ASSERT_EQUAL(read(ready[0], &byte, 1), 1);
    prepare(&rank, 1, LONG_US);
    rank.rank = 1;
    rank.size = 2;
    run(&rank, 1);
    expect(&rank, STEPAF_ERR_BOOT, "rank 0 is another user's");
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    close(ready[0]);
    close(ready[1]);
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
    char name[STEPAF_JOIN_NAME_MAX + 2];

    prepare(&rank, 1, LONG_US);
    env = env_of(&rank);
    env.local_rank = 1;
    refuse(env, "STEPAF_LOCAL_RANK=1: ranks are 0 to 0 with STEPAF_LOCAL_SIZE=1");
    env.local_rank = 0;
    env.from_environment[STEPAF_ENV_LOCAL_RANK] = 0;
    refuse(env, "STEPAF_LOCAL_RANK is not set");
    env.local_size = 0;
    refuse(env, "STEPAF_LOCAL_SIZE is not set");
    env = env_of(&rank);
    env.local_job = (char *)(uintptr_t) "a/b";
    refuse(env, "STEPAF_LOCAL_JOB=a/b: it takes at most 64 letters");
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    env.local_job = name;
    refuse(env, "STEPAF_LOCAL_JOB=nnn");
}

/* A whole job, as a shell would start it. */
static int one_process(int rank)
{
    stepaf_context_h ctx = NULL;
    char number[12];

    snprintf(number, sizeof number, "%d", rank);
    setenv("STEPAF_LOCAL_JOB", job_name, 1);
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
            _exit(one_process(rank));
    for (int rank = 0; rank < 3; rank++) {
        CU_ASSERT(wait(&status) > 0);
        CU_ASSERT_EQUAL(status, 0);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"init needs no launcher", init_needs_no_launcher},
        {"all find each other", all_find_each_other},
        {"one context after the other", one_context_after_the_other},
        {"who is missing is named", who_is_missing_is_named},
        {"contradictions", contradictions},
        {"two jobs of one name", two_jobs_of_one_name},
        {"strangers change nothing", strangers_change_nothing},
        {"another version is told", another_version_is_told},
        {"files are not trusted", files_are_not_trusted},
        {"another user's name", another_users_name},
        {"bad settings", bad_settings},
        CU_TEST_INFO_NULL,
    };
    snprintf(job_name, sizeof job_name, "test-%d", (int)getpid());
    return unit_run("boot_join", tests);
}
