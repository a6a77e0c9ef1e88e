/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that have closed descriptors 0, 1 and 2: nothing of the library's has these numbers, not
 * even for a moment, so that what such a program prints comes nowhere. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fork.h"
#include "pair_rank.h"
#include "unit.h"

enum { LOW = 3, LIMIT_S = 10 };

/* ---- each call of the library's that makes a descriptor ---- */

static int n_low;

static int watched(int fd)
{
    if (fd >= 0 && fd < LOW)
        __atomic_add_fetch(&n_low, 1, __ATOMIC_SEQ_CST);
    return fd;
}

/* What the linker makes of them: WRAP(name, parameters, arguments) */
#define WRAP(name_, parameters_, arguments_)       \
    int __real_##name_ parameters_;                \
    int __wrap_##name_ parameters_;                \
    int __wrap_##name_ parameters_                 \
    {                                              \
        return watched(__real_##name_ arguments_); \
    }

WRAP(memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(socket, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(accept4, (int fd, struct sockaddr *name, socklen_t *bytes, int flags),
     (fd, name, bytes, flags))
WRAP(epoll_create1, (int flags), (flags))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

int __wrap_open(const char *path, int flags, ...)
{
    return watched(__real_open(path, flags, 0644));
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t bytes = __real_recvmsg(fd, message, flags);
    struct cmsghdr *head = bytes >= 0 ? CMSG_FIRSTHDR(message) : NULL;
    int passed;

    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        memcpy(&passed, CMSG_DATA(head), sizeof(passed));
        (void)watched(passed);
    }
    return bytes;
}

long __wrap_syscall(long number, ...)
{
    enum { ARGS = 6, PIDFD_OPEN = 434 };
    long args[ARGS];
    va_list more;

    va_start(more, number);
    for (int i = 0; i < ARGS; i++)
        args[i] = va_arg(more, long);
    va_end(more);
    long result = __real_syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    return number == PIDFD_OPEN ? watched((int)result) : result;
}

/* ---- a job ---- */

static int close_all(void)
{
    int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, LOW);

    for (int fd = 0; fd < LOW; fd++)
        close(fd);
    return kept;
}

static bool all_closed(void)
{
    for (int fd = 0; fd < LOW; fd++)
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            return false;
    return true;
}

/* The progress thread may hold them at times. */
static bool get_closed(void)
{
    time_t began = time(NULL);

    while (!all_closed())
        if (time(NULL) - began > LIMIT_S)
            return false;
    return true;
}

static int exchange(struct pair_rank *rank)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_request_h request;
    stepaf_batch_h batch;

    if (!rank->ffn) {
        memset(rank->memory, 'p', PAIR_BYTES);
        RANK_CHECK(rank->boot, stepaf_start(rank->plan, &request) == STEPAF_OK);
        RANK_CHECK(rank->boot, stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
        for (int i = 0; i < PAIR_BYTES; i++)
            RANK_CHECK(rank->boot, rank->memory[PAIR_BYTES + i] == 'q');
        return 0;
    }
    if (pair_receive(rank, &batch))
        return 1;
    RANK_CHECK(rank->boot, stepaf_batch_tensor(batch, 0, &info) == STEPAF_OK);
    for (int i = 0; i < PAIR_BYTES; i++)
        RANK_CHECK(rank->boot, ((const uint8_t *)info.data)[i] == 'p');
    memset(rank->memory, 'q', PAIR_BYTES);
    return pair_answer(rank, batch);
}

static int play(const stepaf_boot_t *boot, const char *progress)
{
    struct pair_rank rank;

    if (pair_open(&rank, boot, progress))
        return 1;
    RANK_CHECK(boot, get_closed());
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, get_closed());
    fprintf(stderr, "said by the program itself\n");
    fflush(stderr);
    if (exchange(&rank))
        return 1;
    RANK_CHECK(boot,
               stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
    stepaf_finalize(rank.ctx);
    RANK_CHECK(boot, all_closed() && !n_low);
    return 0;
}

/* What is wrong is said once there is somewhere to say it again. */
static int play_closed(const stepaf_boot_t *boot, void *arg)
{
    static char said[BUFSIZ];
    int kept = close_all();

    int wrong = play(boot, arg);
    if (wrong && dup2(kept, STDERR_FILENO) == STDERR_FILENO) {
        snprintf(said, sizeof said, "%s; %d low ones\n", stepaf_last_error()->text, n_low);
        (void)!write(STDERR_FILENO, said, strlen(said));
    }
    return wrong;
}

static void nothing_of_a_job_is_there(void)
{
    static const char *const transports[] = {"shm", "tcp"}, *const progress[] = {"inline",
                                                                                 "thread"};

    setenv("STEPAF_LOG_LEVEL", "debug", 1);
    for (int t = 0; t < 2; t++)
        for (int p = 0; p < 2; p++) {
            setenv("STEPAF_TRANSPORTS", transports[t], 1);
            ranks_expect_processes(2, play_closed, (void *)(uintptr_t)progress[p]);
        }
    unsetenv("STEPAF_TRANSPORTS");
    unsetenv("STEPAF_LOG_LEVEL");
}

/* ---- ranks that find each other by themselves, with a log file ---- */

static int join_closed(int n)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = "attn=1,ffn=1"};
    stepaf_context_h ctx;
    char number[12];

    (void)close_all();
    snprintf(number, sizeof number, "%d", n);
    setenv("STEPAF_LOCAL_RANK", number, 1);
    if (stepaf_init(NULL, &params, &ctx) || !all_closed())
        return 1;
    stepaf_finalize(ctx);
    return !all_closed() || n_low ? 2 : 0;
}

static void nothing_of_a_start_is_there(void)
{
    char job[32], file[] = "/tmp/stepaf-closed-XXXXXX";
    pid_t children[2];
    int status;

    close(mkstemp(file));
    snprintf(job, sizeof job, "closed%d", (int)getpid());
    setenv("STEPAF_LOCAL_JOB", job, 1);
    setenv("STEPAF_LOCAL_SIZE", "2", 1);
    setenv("STEPAF_LOG_FILE", file, 1);
    for (int n = 0; n < 2; n++) {
        children[n] = fork();
        if (!children[n])
            _exit(join_closed(n));
    }
    for (int n = 0; n < 2; n++) {
        CU_ASSERT_EQUAL(waitpid(children[n], &status, 0), children[n]);
        CU_ASSERT_EQUAL(status, 0);
    }
    unsetenv("STEPAF_LOCAL_JOB");
    unsetenv("STEPAF_LOCAL_SIZE");
    unsetenv("STEPAF_LOG_FILE");
    unlink(file);
}

/* ---- what holds them meanwhile ---- */

#define MUST(condition_)     \
    do {                     \
        if (!(condition_))   \
            return __LINE__; \
    } while (0)

static int hold(void)
{
    (void)close_all();
    errno = ENOENT;
    stepaf_fd_begin();
    MUST(errno == ENOENT && !all_closed());
    stepaf_fd_begin();
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    MUST(fd >= LOW && stepaf_fd_end(fd) == fd);
    MUST(!all_closed()); /* the outer one goes on */
    errno = EIO;
    MUST(stepaf_fd_end(-1) == -1 && errno == EIO && all_closed());
    int path = stepaf_fd_open("/dev/null", O_RDONLY);
    MUST(path >= LOW && fcntl(path, F_GETFD) == FD_CLOEXEC);
    MUST(stepaf_fd_open("/nowhere", O_RDONLY) == -1 && errno == ENOENT);
    return 0;
}

static int hold_some(void)
{
    int kept = open("/dev/null", O_RDWR | O_CLOEXEC);

    MUST(dup2(kept, 1) == 1);
    close(0);
    close(2);
    stepaf_fd_begin();
    (void)stepaf_fd_end(-1);
    MUST(fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) >= 0 && fcntl(2, F_GETFD) < 0);
    return 0;
}

/* A child is made in the middle of it: neither they nor what holds them come along. */
static int hold_and_fork(void)
{
    int status = -1;

    (void)close_all();
    stepaf_fd_begin();
    pid_t child = fork();
    if (!child)
        _exit(all_closed() && hold() == 0 ? 0 : 1);
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(!all_closed() && stepaf_fd_end(-1) == -1 && all_closed());
    return 0;
}

/* What comes out of it below 3 all the same is closed, and nothing is remembered of it. */
static int come_out_low(void)
{
    (void)close_all();
    stepaf_fd_begin();
    MUST(stepaf_fd_end(open("/dev/null", O_RDONLY | O_CLOEXEC)) >= LOW);
    MUST(stepaf_fd_end(open("/dev/null", O_RDONLY | O_CLOEXEC)) == -1 && errno == EMFILE);
    MUST(all_closed());
    stepaf_fork_begin();
    int low = dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 1);
    MUST(low == 1 && stepaf_fork_end(low) == -1 && errno == EMFILE);
    return 0;
}

static void they_are_held(void)
{
    static int (*const bodies[])(void) = {hold, hold_some, hold_and_fork, come_out_low};
    int status;

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        pid_t child = fork();
        if (!child) {
            int line = bodies[i]();
            _exit(line ? 1 + line % 255 : 0);
        }
        CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
        CU_ASSERT_EQUAL(status, 0);
        if (status)
            fprintf(stderr, "\n    body %zu, status 0x%x (line modulo 255, and 1)\n", i, status);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nothing of a job is there", nothing_of_a_job_is_there},
        {"nothing of a start is there", nothing_of_a_start_is_there},
        {"they are held", they_are_held},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
