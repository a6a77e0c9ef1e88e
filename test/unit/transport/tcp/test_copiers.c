/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share copies: each copy is done once, by whoever comes to it, and before the
 * join. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stepaf/log.h>

#include "base/time.h"
#include "transport/tcp/copiers.h"
#include "unit.h"

enum { MANY = STEPAF_TCP_COPIES, READS = 4, TICKS_PER_US = 1000, PAGE = 4096 };

static struct stepaf_tcp_copiers *copiers;
static int ends[MANY][2]; /* what one end is given comes out at the other */
static uint8_t *large;
static const size_t large_bytes = (size_t)READS * STEPAF_TCP_READ_BYTES + 5000;

/* What the linker makes of them: the test says how many may succeed. */
static int n_threads_left = INT_MAX, n_memory_left = INT_MAX;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg)
{
    return n_threads_left-- > 0 ? __real_pthread_create(thread, attributes, run, arg) : EAGAIN;
}

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return n_memory_left-- > 0 ? __real_aligned_alloc(alignment, bytes) : NULL;
}

/* There is always something to read, or only what there is. */
static bool is_endless;

ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    return is_endless ? (ssize_t)message->msg_iov->iov_len : __real_recvmsg(fd, message, flags);
}

static void begin(unsigned n)
{
    for (int i = 0; i < MANY; i++)
        CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[i]), 0);
    large = calloc(1, large_bytes);
    copiers = stepaf_tcp_copiers_start(n, TICKS_PER_US);
    CU_ASSERT_PTR_NOT_NULL_FATAL(copiers);
}

static void end(void)
{
    stepaf_tcp_copiers_end(copiers);
    for (int i = 0; i < MANY; i++)
        for (int k = 0; k < 2; k++)
            close(ends[i][k]);
    free(large);
}

static const struct stepaf_tcp_copy *offer_send(int i, struct iovec *iov)
{
    const struct stepaf_tcp_copy copy = {.fd = ends[i][0], .n_iov = 1, .iov = iov};

    return stepaf_tcp_copiers_offer(copiers, &copy);
}

static const struct stepaf_tcp_copy *offer_read(int i, struct iovec *iov)
{
    const struct stepaf_tcp_copy copy = {
        .fd = ends[i][1], .receives = true, .n_iov = 1, .iov = iov};

    return stepaf_tcp_copiers_offer(copiers, &copy);
}

/* Send by all pairs at a time, then read all, a new number in each. */
static void pass_round(uint32_t number)
{
    const struct stepaf_tcp_copy *copies[MANY];
    uint32_t sent[MANY], got[MANY];
    struct iovec iov[MANY];
    unsigned n = 1 + number % MANY, wrong = 0;

    for (unsigned i = 0; i < n; i++) {
        sent[i] = number * MANY + i;
        iov[i] = (struct iovec){&sent[i], sizeof sent[i]};
        copies[i] = offer_send((int)i, &iov[i]);
    }
    stepaf_tcp_copiers_join(copiers);
    for (unsigned i = 0; i < n; i++)
        wrong += copies[i]->bytes != sizeof sent[i] || copies[i]->error != 0;
    for (unsigned i = 0; i < n; i++) {
        iov[i] = (struct iovec){&got[i], sizeof got[i]};
        copies[i] = offer_read((int)i, &iov[i]);
    }
    stepaf_tcp_copiers_join(copiers);
    for (unsigned i = 0; i < n; i++)
        wrong += copies[i]->bytes != sizeof got[i] || got[i] != sent[i];
    if (wrong)
        CU_FAIL_FATAL("a copy is not as it was offered");
}

static void many_in_a_row_are_done_once(void)
{
    static const unsigned threads[] = {1, 3, STEPAF_TCP_COPIERS_MAX};
    uint32_t n_rounds = getenv("TEST_LIGHT") ? 2000 : 30000; /* some 8 copies each */

    for (int i = 0; i < 3; i++) {
        begin(threads[i]);
        for (uint32_t number = 0; number < n_rounds; number++)
            pass_round(number);
        end();
    }
}

/* Whether all threads but this one are asleep, as the kernel says. */
static bool are_asleep(void)
{
    DIR *directory = opendir("/proc/self/task");
    const struct dirent *entry;
    bool asleep = directory != NULL;

    while (asleep && (entry = readdir(directory))) {
        char path[300], text[512];
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == (int)getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file)
            fclose(file);
        text[n] = '\0';
        const char *state = strrchr(text, ')');
        asleep = state && state[1] && state[2] == 'S';
    }
    if (directory)
        closedir(directory);
    return asleep;
}

static bool fall_asleep(void)
{
    int64_t deadline_ns = stepaf_monotonic_ns() + 10 * 1000000000LL;

    while (!are_asleep())
        if (stepaf_monotonic_ns() > deadline_ns)
            return false;
    return true;
}

/* The caller only waits for what comes out at the other end. */
static void a_thread_does_it_by_itself(void)
{
    begin(2);
    for (int i = 0; i < 20; i++) {
        uint32_t number = (uint32_t)i, got = 0;
        struct iovec iov = {&number, sizeof number};
        if (i % 2)
            CU_ASSERT_TRUE(fall_asleep());
        const struct stepaf_tcp_copy *copy = offer_send(0, &iov);
        CU_ASSERT_EQUAL(recv(ends[0][1], &got, sizeof got, MSG_WAITALL), sizeof got);
        CU_ASSERT_EQUAL(got, number);
        stepaf_tcp_copiers_join(copiers);
        CU_ASSERT(copy->bytes == sizeof number && !copy->error);
    }
    end();
}

/* A child has none of the threads: its caller does all itself, and it can close. */
static void without_threads_the_caller_does_it(void)
{
    int status = -1;

    begin(2);
    pass_round(1);
    pid_t child = fork();
    if (!child) {
        for (uint32_t number = 0; number < 20; number++)
            pass_round(number);
        stepaf_tcp_copiers_end(copiers);
        _exit(0);
    }
    CU_ASSERT(child > 0 && waitpid(child, &status, 0) == child);
    CU_ASSERT_EQUAL(status, 0);
    pass_round(2);
    end();
}

static void they_end_whatever_they_do(void)
{
    for (int i = 0; i < 100; i++) {
        begin(1 + (unsigned)i % STEPAF_TCP_COPIERS_MAX);
        if (i % 3)
            pass_round(6);
        if (i % 10 == 2)
            CU_ASSERT_TRUE(fall_asleep());
        end();
    }
    stepaf_tcp_copiers_end(NULL);
}

/* What the system calls say comes to the caller. */
static void a_copy_says_what_came_of_it(void)
{
    const struct stepaf_tcp_copy *copies[5];
    struct iovec iov[5];
    /* Pages that nobody may touch, and nobody else is given. */
    uint8_t *barred = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    begin(1);
    CU_ASSERT_NOT_EQUAL_FATAL(barred, MAP_FAILED);
    close(ends[0][1]);
    ends[0][1] = -1;
    iov[0] = (struct iovec){large, 100};
    copies[0] = offer_send(0, &iov[0]);
    iov[1] = (struct iovec){barred, PAGE};
    copies[1] = offer_send(1, &iov[1]);
    iov[2] = (struct iovec){large, 100};
    copies[2] = offer_read(2, &iov[2]);
    CU_ASSERT_EQUAL(send(ends[3][0], "!", 1, 0), 1);
    iov[3] = (struct iovec){barred + PAGE, PAGE};
    copies[3] = offer_read(3, &iov[3]);
    close(ends[4][0]);
    ends[4][0] = -1;
    iov[4] = (struct iovec){large, 100};
    copies[4] = offer_read(4, &iov[4]);
    stepaf_tcp_copiers_join(copiers);
    CU_ASSERT(copies[0]->error == EPIPE && copies[1]->error == EFAULT &&
              copies[2]->error == EAGAIN && copies[3]->error == EFAULT && !copies[4]->error);
    for (int i = 0; i < 5; i++)
        CU_ASSERT(!copies[i]->bytes && copies[i]->over == (i == 4));
    end();
    munmap(barred, 2 * PAGE);
}

/* A read goes on while there is something, but not for ever: others wait. */
static void a_read_takes_several_steps(void)
{
    static const size_t is_there[] = {0, 1, PAGE, STEPAF_TCP_READ_BYTES,
                                      STEPAF_TCP_READ_BYTES + PAGE};

    begin(1);
    for (int i = 0; i < 5; i++) {
        struct iovec out = {large, is_there[i]}, in = {large, large_bytes};
        const struct stepaf_tcp_copy *copy = offer_send(0, &out);
        stepaf_tcp_copiers_join(copiers);
        CU_ASSERT_EQUAL_FATAL(copy->bytes, is_there[i]);
        copy = offer_read(0, &in);
        stepaf_tcp_copiers_join(copiers);
        CU_ASSERT(copy->bytes == is_there[i] && !copy->over);
    }
    is_endless = true;
    struct stepaf_tcp_copy own = {
        .fd = ends[0][1], .receives = true, .n_iov = 1, .iov = &(struct iovec){large, large_bytes}};
    stepaf_tcp_copy_run(&own);
    is_endless = false;
    CU_ASSERT(own.bytes == large_bytes - 5000 && !own.error);
    end();
}

static unsigned n_warnings;

static void count_warning(stepaf_log_level_t level, const char *file, int line, const char *message,
                          void *arg)
{
    (void)file;
    (void)line;
    (void)arg;
    n_warnings += level == STEPAF_LOG_WARN && strstr(message, "STEPAF_TCP_THREADS=3") != NULL;
}

/* With fewer it goes as well, with none there is nothing to go on with. */
static void threads_may_be_fewer(void)
{
    stepaf_log_set_callback(count_warning, NULL);
    for (int n = 0; n < 3; n++) {
        n_threads_left = n;
        if (n) {
            begin(3);
            for (uint32_t number = 0; number < 100; number++)
                pass_round(number);
            end();
        } else {
            CU_ASSERT_PTR_NULL(stepaf_tcp_copiers_start(3, TICKS_PER_US));
        }
        CU_ASSERT_EQUAL(n_warnings, (unsigned)n + 1);
    }
    n_threads_left = INT_MAX;
    n_memory_left = 0;
    CU_ASSERT_PTR_NULL(stepaf_tcp_copiers_start(3, TICKS_PER_US));
    CU_ASSERT_EQUAL(n_warnings, 4);
    n_memory_left = INT_MAX;
    stepaf_log_set_callback(NULL, NULL);
}

/* A signal of the program's is for threads of its own. */
static void signals_are_not_for_them(void)
{
    sigset_t mine;
    int number = 0;

    begin(3);
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &mine, NULL);
    CU_ASSERT_EQUAL(kill(getpid(), SIGUSR1), 0); /* it would end the process */
    pass_round(6);
    CU_ASSERT(!sigwait(&mine, &number) && number == SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &mine, NULL);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"many in a row are done once", many_in_a_row_are_done_once},
        {"a thread does it by itself", a_thread_does_it_by_itself},
        {"without threads the caller does it", without_threads_the_caller_does_it},
        {"they end whatever they do", they_end_whatever_they_do},
        {"a copy says what came of it", a_copy_says_what_came_of_it},
        {"a read takes several steps", a_read_takes_several_steps},
        {"threads may be fewer", threads_may_be_fewer},
        {"signals are not for them", signals_are_not_for_them},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
