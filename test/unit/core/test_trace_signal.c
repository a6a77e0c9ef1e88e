/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_TRACE_SIGNAL and STEPAF_TRACE_FILE with a file system that hangs, or a file that is
 * locked: nobody waits for it, and no signal is forgotten. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"
#include "fake.h"
#include "unit.h"

enum { LOOKS = 3, WITHIN_S = 60 };

static char directory[] = "/tmp/test_trace_signalXXXXXX";
static _Atomic bool hangs;
static _Atomic int n_left;

/* Comes before the C library's. */
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    while (hangs)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return syscall(SYS_pwrite64, fd, data, bytes, at);
}

/* Likewise: of a thread that is left to itself. */
int pthread_detach(pthread_t thread)
{
    int (*real)(pthread_t thread);

    *(void **)&real = dlsym(RTLD_NEXT, "pthread_detach");
    n_left++;
    return real(thread);
}

static void name_file(char *path, const char *end)
{
    snprintf(path, 128, "%s/trace%s", directory, end);
}

/* How many ranks have added their events. */
static int ranks_in(const char *end)
{
    char path[128], line[4096];
    int n = 0;

    name_file(path, end);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        n += strstr(line, "\"process_name\"") != NULL;
    if (file)
        fclose(file);
    return n;
}

static struct fake_job *begin(void)
{
    char path[128];

    name_file(path, "");
    setenv("STEPAF_TRACE_FILE", path, 1);
    setenv("STEPAF_TRACE_SIGNAL", "usr1", 1);
    struct fake_job *job = fake_open(STEPAF_ATTENTION, 1, 1);
    unsetenv("STEPAF_TRACE_SIGNAL");
    unsetenv("STEPAF_TRACE_FILE");
    return job;
}

/* Call the library until it has looked at signals some times more. */
static void look(struct fake_job *job)
{
    int64_t until = stepaf_monotonic_ns() + WITHIN_S * 1000000000LL;

    for (int n = 0; n < LOOKS && stepaf_monotonic_ns() < until; n++) {
        uint64_t checked = job->ctx->polling.checked;
        while (job->ctx->polling.checked == checked && stepaf_monotonic_ns() < until)
            CU_ASSERT_EQUAL_FATAL(stepaf_progress(job->handle), STEPAF_OK);
    }
}

/* Then its events are not added, but it leaves no thread behind, which would have memory and
 * descriptors for a while. */
static void a_file_that_another_has_locked_is_given_up(void)
{
    char path[128];

    name_file(path, "");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CU_ASSERT_FATAL(fd >= 0 && !flock(fd, LOCK_EX));
    int n_ranks = ranks_in("");
    setenv("STEPAF_TIMEOUT_US", "2000000", 1);
    struct fake_job *job = begin();
    unsetenv("STEPAF_TIMEOUT_US");
    fake_close(job);
    CU_ASSERT_EQUAL(n_left, 0);
    CU_ASSERT_EQUAL(ranks_in(""), n_ranks);
    close(fd);
}

static void a_file_system_that_hangs_holds_up_nobody(void)
{
    struct fake_job *job = begin();

    hangs = true;
    raise(SIGUSR1);
    look(job);
    raise(SIGUSR1);
    look(job); /* it would not return */
    CU_ASSERT_EQUAL(job->ctx->trace.n_heeded, 1);
    CU_ASSERT_EQUAL(ranks_in(".1"), 0);
    hangs = false;
    int64_t until = stepaf_monotonic_ns() + WITHIN_S * 1000000000LL;
    while (job->ctx->trace.n_heeded < 2 && stepaf_monotonic_ns() < until)
        look(job);
    fake_close(job);
    CU_ASSERT_EQUAL(ranks_in(".1"), 1);
    CU_ASSERT_EQUAL(ranks_in(".2"), 1);
    CU_ASSERT_EQUAL(ranks_in(""), 1);
}

/* What is left then goes on by itself. Signals are counted for the process: this is its third. */
static void finalize_waits_no_longer_than_anything(void)
{
    setenv("STEPAF_TIMEOUT_US", "20000", 1);
    struct fake_job *job = begin();
    unsetenv("STEPAF_TIMEOUT_US");

    hangs = true;
    raise(SIGUSR1);
    look(job);
    fake_close(job); /* it would not return */
    CU_ASSERT_EQUAL(ranks_in(".3"), 0);
    hangs = false;
    int64_t until = stepaf_monotonic_ns() + WITHIN_S * 1000000000LL;
    while ((ranks_in(".3") < 1 || ranks_in("") < 1) && stepaf_monotonic_ns() < until)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    CU_ASSERT_EQUAL(ranks_in(".3"), 1);
}

static void remove_files(void)
{
    static const char *const ends[] = {"", ".1", ".2", ".3"};
    char path[128];

    for (int i = 0; i < 4; i++) {
        name_file(path, ends[i]);
        (void)unlink(path);
    }
    (void)rmdir(directory);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a file that another has locked is given up", a_file_that_another_has_locked_is_given_up},
        {"a file system that hangs holds up nobody", a_file_system_that_hangs_holds_up_nobody},
        {"finalize waits no longer than anything", finalize_waits_no_longer_than_anything},
        CU_TEST_INFO_NULL,
    };

    if (!mkdtemp(directory))
        return 99;
    int code = unit_run(tests);
    remove_files();
    return code;
}
