/* SPDX-License-Identifier: Apache-2.0 */
/* Who else may be at the place where ranks of one machine meet: another job, another version,
 * another user, anybody. Nothing that comes from there is trusted. */
#define _GNU_SOURCE 1 /* memfd_create */

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "boot/boot_join_strangers.h"
#include "joins.h"

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

/* A connection to the name, as soon as there is somebody. */
static int call_name(const struct sockaddr_un *address, socklen_t bytes)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    while (connect(fd, (const struct sockaddr *)address, bytes) != 0 && errno == ECONNREFUSED)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    return fd;
}

/* The same to the job's name; then @a bytes of @a data. */
static int call_as_guest(const void *data, size_t bytes)
{
    struct sockaddr_un address;
    socklen_t address_bytes = address_of_job(&address);
    int fd = call_name(&address, address_bytes);
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
    expect(&rank, STEPAF_ERR_BOOT, "set a different STEPAF_LOCAL_JOB for each job");
    close(fd);
}

/* Another user has the name: it is not told that the job is there twice. */
static void another_user_has_the_name(void)
{
    static const char *const said[] = {
        "another rank 0, or another user, has the name already", /* it does not listen */
        "a process of user 65534 has taken the place of rank 0"};

    for (int listens = 0; geteuid() == 0 && listens < 2; listens++) {
        struct rank rank;
        struct sockaddr_un address;
        socklen_t bytes = address_of_job(&address);
        int ready[2], status;
        char byte;
        CU_ASSERT_EQUAL_FATAL(pipe(ready), 0);
        pid_t child = fork();
        if (!child) {
            int fd = setuid(65534) ? -1 : socket(AF_UNIX, SOCK_SEQPACKET, 0);
            if (bind(fd, (struct sockaddr *)&address, bytes) || (listens && listen(fd, 8)) ||
                write(ready[1], "", 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        CU_ASSERT_EQUAL_FATAL(read(ready[0], &byte, 1), 1);
        prepare(&rank, 1, LONG_US);
        rank.size = 2;
        run(&rank, 1);
        expect(&rank, STEPAF_ERR_BOOT, said[listens]);
        kill(child, SIGKILL);
        CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
        close(ready[0]);
        close(ready[1]);
    }
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

/* Nobody waits for one that says nothing, nor for several one after the other. */
static void silence_holds_up_nobody(void)
{
    enum { SILENT = 12 };
    struct rank ranks[RANKS_MAX];
    int fds[SILENT];

    prepare(ranks, RANKS_MAX, LONG_US / 2);
    start(ranks, 1);
    for (int i = 0; i < SILENT; i++)
        fds[i] = call_as_guest(NULL, 0);
    run(ranks + 1, RANKS_MAX - 1);
    finish(ranks, 1);
    for (int i = 0; i < RANKS_MAX; i++)
        expect(&ranks[i], STEPAF_OK, "");
    for (int i = 0; i < SILENT; i++)
        close(fds[i]);
}

/* More than there is room for: each is sent away, at the latest when its time is over. */
static void silence_has_an_end(void)
{
    enum { SILENT = STEPAF_JOIN_STRANGERS_MAX + 16 };
    struct rank ranks[3];
    int before = count_fds(), fds[SILENT];

    prepare(ranks, 3, ENDLESS_US);
    start(ranks, 1);
    for (int i = 0; i < SILENT; i++)
        fds[i] = call_as_guest(NULL, 0);
    for (int i = 0; i < SILENT; i++) {
        CU_ASSERT_EQUAL(recv(fds[i], &(char){0}, 1, 0), 0);
        close(fds[i]);
    }
    run(ranks + 1, 2);
    finish(ranks, 1);
    for (int i = 0; i < 3; i++)
        expect(&ranks[i], STEPAF_OK, "");
    CU_ASSERT_EQUAL(count_fds(), before);
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
    CU_ASSERT_EQUAL(answer.peer, 1 + 1);
    UNIT_CONTAINS(answer.reason, "another version of libstepaf");
}

/* Answer the one guest of @a fd with two files. */
static void answer_with(int fd, struct stepaf_join_answer answer, const int files[2])
{
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
        answer_with(fd, (struct stepaf_join_answer){.magic = what == 2 ? 7 : STEPAF_JOIN_MAGIC},
                    what == 0 ? files : NULL);
        close(fd);
        finish(&rank, 1);
        if (what == 2) /* "come", or "gather all" if it was there at the last try */
            expect(&rank, STEPAF_ERR_TIMEOUT, "rank 0 did not ");
        else
            expect(&rank, STEPAF_ERR_BOOT, "the shared files of rank 0 are not for 2 ranks");
    }
    CU_ASSERT_EQUAL(count_fds(), before);
    close(files[0]);
    close(files[1]);
}

/* Whose failure rank 0 says it is, is a rank of the job or nobody. */
static void ranks_are_not_trusted(void)
{
    static const int peers[] = {0, 1, 2, 3, -1, INT32_MIN, INT32_MAX};
    struct rank rank;

    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        int fd = listen_as_host();
        prepare(&rank, 1, LONG_US);
        rank.rank = 1;
        rank.size = 2;
        start(&rank, 1);
        answer_with(fd,
                    (struct stepaf_join_answer){.magic = STEPAF_JOIN_MAGIC,
                                                .status = STEPAF_ERR_BOOT,
                                                .reason = "because",
                                                .peer = peers[i]},
                    NULL);
        close(fd);
        finish(&rank, 1);
        expect_of(&rank, peers[i] == 1 || peers[i] == 2 ? peers[i] - 1 : -1, STEPAF_ERR_BOOT,
                  "because");
    }
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
    expect(&rank, STEPAF_ERR_BOOT, "rank 0 belongs to another user");
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

/* Another user calls rank 0, with the right words: it is given nothing, and no rank's place. */
static void another_user_calls(void)
{
    struct stepaf_join_hello hello = {
        .magic = STEPAF_JOIN_MAGIC, .layout = STEPAF_JOIN_LAYOUT, .rank = 1, .size = 2};
    struct rank ranks[2];
    struct sockaddr_un address;
    socklen_t bytes = address_of_job(&address); /* which differs between users */
    int status;

    if (geteuid() != 0)
        return;
    pid_t other = fork();
    if (other == 0) {
        char answer[sizeof(struct stepaf_join_answer)];
        alarm(LONG_US / 1000000);
        int fd = setuid(65534) ? -1 : call_name(&address, bytes);
        (void)send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
        _exit(fd < 0 || recv(fd, answer, sizeof answer, 0) > 0);
    }
    prepare(ranks, 2, LONG_US);
    start(ranks, 1);
    CU_ASSERT_EQUAL(waitpid(other, &status, 0), other);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    run(ranks + 1, 1);
    finish(ranks, 1);
    expect(&ranks[0], STEPAF_OK, "");
    expect(&ranks[1], STEPAF_OK, "");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"two jobs of one name", two_jobs_of_one_name},
        {"another user has the name", another_user_has_the_name},
        {"strangers change nothing", strangers_change_nothing},
        {"silence holds up nobody", silence_holds_up_nobody},
        {"silence has an end", silence_has_an_end},
        {"another version is told", another_version_is_told},
        {"files are not trusted", files_are_not_trusted},
        {"ranks are not trusted", ranks_are_not_trusted},
        {"another user's name", another_users_name},
        {"another user calls", another_user_calls},
        CU_TEST_INFO_NULL,
    };
    snprintf(job_name, sizeof job_name, "test-%d", (int)getpid());
    return unit_run(tests);
}
