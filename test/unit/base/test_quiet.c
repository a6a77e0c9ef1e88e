/* SPDX-License-Identifier: Apache-2.0 */
/* What would end the process by a signal: writing where nobody reads, and beyond RLIMIT_FSIZE. The
 * signals have their default actions here, so that a child which gets one is dead. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stepaf/stepaf.h>

#include "base/fd.h"
#include "base/quiet.h"
#include "base/why.h"
#include "ranks.h"
#include "unit.h"

enum { MAX_BYTES = 1 << 20 };

#define MUST(condition_)     \
    do {                     \
        if (!(condition_))   \
            return __LINE__; \
    } while (0)

static void expect(int (*body)(void))
{
    int status = -1;
    pid_t child = fork();

    if (!child)
        _exit(body() ? 1 : 0);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
}

static bool is_pending(int number)
{
    sigset_t set;

    sigpending(&set);
    return sigismember(&set, number) == 1;
}

static bool is_blocked(int number)
{
    sigset_t mask;

    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    return sigismember(&mask, number) == 1;
}

/* A pipe's end that nobody reads at the other. */
static int dead_end(void)
{
    int ends[2];

    if (pipe(ends))
        return -1;
    close(ends[0]);
    return ends[1];
}

static void limit_files(rlim_t bytes)
{
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, RLIM_INFINITY});
}

static int write_to_nobody(void)
{
    struct stepaf_quiet quiet;

    stepaf_quiet_begin(&quiet);
    MUST(write(dead_end(), "x", 1) == -1 && errno == EPIPE);
    MUST(is_pending(SIGPIPE));
    stepaf_quiet_end(&quiet);
    MUST(errno == EPIPE && !is_pending(SIGPIPE));
    MUST(!is_blocked(SIGPIPE) && !is_blocked(SIGXFSZ));
    return 0;
}

/* What was there before is the program's. */
static int keep_what_is_pending(void)
{
    struct stepaf_quiet quiet;
    sigset_t pipes;

    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipes, NULL);
    raise(SIGPIPE);
    stepaf_quiet_begin(&quiet);
    MUST(write(dead_end(), "x", 1) == -1 && errno == EPIPE);
    stepaf_quiet_end(&quiet);
    MUST(is_pending(SIGPIPE) && is_blocked(SIGPIPE) && !is_blocked(SIGXFSZ));
    return 0;
}

static int resize_beyond_the_limit(void)
{
    int fd = memfd_create("test", 0);

    limit_files(MAX_BYTES);
    MUST(stepaf_fd_resize(fd, MAX_BYTES) == 0);
    MUST(stepaf_fd_resize(fd, MAX_BYTES + 1) == -1 && errno == EFBIG);
    MUST(strstr(stepaf_why(EFBIG), "1048576 bytes in a file (ulimit -f)"));
    limit_files(RLIM_INFINITY);
    MUST(!strcmp(stepaf_why(EFBIG), strerror(EFBIG)));
    MUST(
        strstr(stepaf_why(ETOOMANYREFS), " descriptors in transit to other processes (ulimit -n)"));
    MUST(!strcmp(stepaf_why(EPERM), strerror(EPERM)));
    return 0;
}

static void they_are_kept_from_the_program(void)
{
    expect(write_to_nobody);
    expect(keep_what_is_pending);
    expect(resize_beyond_the_limit);
}

/* ---- in the library ---- */

static int allocate(const stepaf_boot_t *boot, void *arg)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = boot->rank ? STEPAF_FFN : STEPAF_ATTENTION};
    stepaf_boot_t own = *boot;
    stepaf_context_h ctx;
    void *memory;

    (void)arg;
    own.close = NULL;
    RANK_CHECK(boot, stepaf_init(&own, &params, &ctx) == STEPAF_OK);
    limit_files(MAX_BYTES);
    RANK_CHECK(boot,
               stepaf_alloc(ctx, 2 * MAX_BYTES, STEPAF_MEM_HOST, &memory) == STEPAF_ERR_NO_MEMORY);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "ulimit -f") != NULL);
    RANK_CHECK(boot, stepaf_alloc(ctx, MAX_BYTES, STEPAF_MEM_HOST, &memory) == STEPAF_OK);
    stepaf_finalize(ctx);
    return 0;
}

static int exchange(const stepaf_boot_t *boot, void *arg)
{
    size_t offsets[3];
    void *all = NULL;
    char *data = calloc(1, 2 * MAX_BYTES);

    (void)arg;
    if (boot->rank == 1)
        limit_files(MAX_BYTES);
    stepaf_status_t status =
        boot->allgather(boot->self, data, 2 * MAX_BYTES, &all, offsets, 20000000);
    free(data);
    free(all);
    RANK_CHECK(boot, status == STEPAF_ERR_BOOT);
    if (boot->rank == 1)
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, "ulimit -f") != NULL);
    return 0;
}

static int start_with_a_limit(void)
{
    stepaf_boot_local_t *local;

    limit_files(64);
    MUST(stepaf_boot_local_create(2, &local) == STEPAF_ERR_NO_MEMORY);
    MUST(strstr(stepaf_last_error()->text, "ulimit -f") != NULL);
    return 0;
}

static void a_limit_of_files_ends_no_rank(void)
{
    ranks_expect_processes(2, allocate, NULL);
    ranks_expect_processes(2, exchange, NULL);
    expect(start_with_a_limit);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"they are kept from the program", they_are_kept_from_the_program},
        {"a limit of files ends no rank", a_limit_of_files_ends_no_rank},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
