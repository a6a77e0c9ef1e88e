/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_perf: a rank that has failed does not wait long for ranks that never come. */
#include <sys/wait.h>
#include <unistd.h>

#include "bench/perf/fail.h"
#include "bench/perf/job.h"
#include "unit.h"

enum { LATE_US = 2500000, LONG_S = 60 };

static stepaf_status_t gather_never(void *self, const void *data, size_t bytes, void **all_p,
                                    size_t *offsets_p, int64_t timeout_us)
{
    (void)self;
    (void)data;
    (void)bytes;
    (void)all_p;
    (void)offsets_p;
    (void)timeout_us;
    for (int i = 0; i < LONG_S; i++) /* the signal ends a sleep */
        sleep(1);
    return STEPAF_ERR_TIMEOUT;
}

/* The verdicts of one rank, after it has said that it has failed, and before it would end. */
static stepaf_status_t gather_late(void *self, const void *data, size_t bytes, void **all_p,
                                   size_t *offsets_p, int64_t timeout_us)
{
    (void)self;
    (void)timeout_us;
    for (int left = LATE_US / 100000; left > 0; left--)
        usleep(100000);
    *all_p = malloc(bytes);
    if (*all_p == NULL)
        return STEPAF_ERR_NO_MEMORY;
    memcpy(*all_p, data, bytes);
    offsets_p[0] = 0;
    offsets_p[1] = bytes;
    return STEPAF_OK;
}

/* Agree in a process of its own; what it says on standard error is @a said. Returns its exit code. */
static int agree(const stepaf_boot_t *channel, char *said, size_t said_bytes)
{
    size_t n = 0;
    ssize_t got;
    int status, ends[2];

    if (pipe(ends) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        struct perf_job job = {.channel = *channel, .wait_s = 1};
        dup2(ends[1], STDERR_FILENO);
        perf_fail_set("it is slow");
        if (perf_job_agree(&job, -1) != -1)
            _exit(9);
        fprintf(stderr, "%s\n", perf_fail_text());
        sleep(4); /* until behind the end of its own wait: nothing ends the process any more */
        _exit(8);
    }
    close(ends[1]);
    while (pid > 0 && n < said_bytes - 1 && (got = read(ends[0], said + n, said_bytes - 1 - n)) > 0)
        n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                           : -1;
}

static void test_never(void)
{
    const stepaf_boot_t channel = {.rank = 1, .size = 2, .allgather = gather_never};
    char said[1024];

    CU_ASSERT_EQUAL(agree(&channel, said, sizeof(said)), PERF_EXIT_FAILED);
    UNIT_STRING(said, "stepaf_perf: rank 1 failed: it is slow\n");
}

static void test_late(void)
{
    const stepaf_boot_t channel = {.rank = 0, .size = 1, .allgather = gather_late};
    char said[1024];

    CU_ASSERT_EQUAL(agree(&channel, said, sizeof(said)), 8);
    UNIT_STRING(said, "stepaf_perf: rank 0 failed: it is slow\nrank 0 failed: it is slow\n");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"others never come", test_never},
        {"others come late", test_late},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
