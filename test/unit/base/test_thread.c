/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library's own, and the signals of the program that they run in. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "unit.h"

enum { HANDLED = 7 };

/* What the linker makes of it: an errno instead of a thread. */
static int refusal;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg)
{
    return refusal ? refusal : __real_pthread_create(thread, attributes, run, arg);
}

static sigset_t mask(void)
{
    sigset_t now;

    sigemptyset(&now);
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    return now;
}

static void *get_mask(void *arg)
{
    *(sigset_t *)arg = mask();
    return NULL;
}

/* Whether the calling thread has the mask that it had. */
static bool is_same(const sigset_t *before)
{
    sigset_t now = mask();
    bool same = true;

    for (int number = 1; number < SIGRTMAX; number++)
        same = same && sigismember(before, number) == sigismember(&now, number);
    return same;
}

static void it_has_all_blocked_but_faults(void)
{
    static const int blocked[] = {SIGINT,  SIGTERM, SIGHUP,  SIGUSR1, SIGUSR2, SIGPIPE,
                                  SIGALRM, SIGCHLD, SIGPROF, SIGQUIT, SIGABRT};
    static const int open[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    sigset_t before = mask(), its;
    pthread_t thread;

    sigemptyset(&its);
    CU_ASSERT_EQUAL_FATAL(stepaf_thread_start(&thread, get_mask, &its), 0);
    CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
    for (unsigned i = 0; i < sizeof blocked / sizeof *blocked; i++)
        CU_ASSERT_EQUAL(sigismember(&its, blocked[i]), 1);
    CU_ASSERT_EQUAL(sigismember(&its, SIGRTMAX), 1);
    for (unsigned i = 0; i < sizeof open / sizeof *open; i++)
        CU_ASSERT_EQUAL(sigismember(&its, open[i]), 0);
    CU_ASSERT_TRUE(is_same(&before));
}

static void none_leaves_the_mask_as_it_was(void)
{
    sigset_t before = mask(), its;
    pthread_t thread;

    refusal = EAGAIN;
    CU_ASSERT_EQUAL(stepaf_thread_start(&thread, get_mask, &its), EAGAIN);
    refusal = 0;
    CU_ASSERT_TRUE(is_same(&before));
}

static void *await_end(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg))
        usleep(1000);
    return NULL;
}

/* Its creator has the signal blocked by now; it would end the process in any other thread. */
static void it_takes_no_signal_of_the_process(void)
{
    _Atomic bool over = false;
    sigset_t mine;
    pthread_t thread;
    int number = 0;

    CU_ASSERT_EQUAL_FATAL(stepaf_thread_start(&thread, await_end, &over), 0);
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &mine, NULL);
    CU_ASSERT_EQUAL(kill(getpid(), SIGUSR1), 0);
    CU_ASSERT(!sigwait(&mine, &number) && number == SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &mine, NULL);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
}

static void leave(int number)
{
    (void)number;
    _exit(HANDLED);
}

static void *touch(void *arg)
{
    *(volatile char *)arg = 1;
    return NULL;
}

static void a_fault_is_the_handlers(void)
{
    char *barred = mmap(NULL, (size_t)getpagesize(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int status = -1;

    CU_ASSERT_NOT_EQUAL_FATAL(barred, MAP_FAILED);
    pid_t child = fork();
    if (!child) {
        pthread_t thread;
        signal(SIGSEGV, leave);
        if (!stepaf_thread_start(&thread, touch, barred))
            pthread_join(thread, NULL);
        _exit(1);
    }
    CU_ASSERT(child > 0 && waitpid(child, &status, 0) == child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == HANDLED);
    munmap(barred, (size_t)getpagesize());
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"it has all blocked but faults", it_has_all_blocked_but_faults},
        {"none leaves the mask as it was", none_leaves_the_mask_as_it_was},
        {"it takes no signal of the process", it_takes_no_signal_of_the_process},
        {"a fault is the handler's", a_fault_is_the_handlers},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
