/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_perf: what ranks have measured on GPUs becomes one result, and a file of all samples. No
 * GPU is asked for it. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf/gpu/row_state.h"
#include "perf/samples.h"
#include "unit.h"

enum { RANKS = 2, SAMPLES = 3, INDEX = 4, PUSH_BYTES = 64, PULL_BYTES = 32 };

static char name[] = "/tmp/stepaf-samples-XXXXXX";

static int enqueue_nothing(void *self, unsigned m, uint64_t ops, cudaStream_t stream)
{
    (void)self, (void)m, (void)ops, (void)stream;
    return 0;
}

/* Take part as rank @a rank: an attention rank, or the FFN rank, which has no samples. */
static int merge(stepaf_boot_local_t *local, int rank, struct perf_result *r)
{
    double unit[SAMPLES] = {3.0, 1.0, 2.0}, host[SAMPLES] = {0.5, 0.25, 0.75};
    struct perf_options options = {.test = PERF_AF, .output.samples_file = name};
    struct perf_rank ranks[RANKS] = {{.role = STEPAF_ATTENTION}, {.role = STEPAF_FFN}};
    struct perf_place place = {
        .rank = rank, .size = RANKS, .role = ranks[rank].role, .ranks = ranks};
    struct perf_job job = {.mpi_init_ns = -1};
    struct perf_gpu_rank gpus[RANKS] = {{.name = "made up"}, {.name = "made up"}};
    struct perf_gpu gpu = {.job = &job, .options = &options, .place = &place, .ranks = gpus};
    struct perf_gpu_row row = {.gpu = &gpu,
                               .c = {.attn = 1,
                                     .ffn = 1,
                                     .microbatches = 1,
                                     .push_bytes = PUSH_BYTES,
                                     .pull_bytes = PULL_BYTES},
                               .player.unit_ops = 8,
                               .timed_units = SAMPLES,
                               .sides[PERF_OURS].enqueue = enqueue_nothing};
    int rc;

    if (stepaf_boot_local_attach(local, rank, -1, &job.channel) != STEPAF_OK)
        return -1;
    if (rank == 0)
        row.samples[PERF_OURS] = (struct perf_gpu_samples){unit, SAMPLES, host, SAMPLES, 6.0};
    r->index = INDEX;
    rc = perf_gpu_row_merge(&row, r);
    if (job.channel.close != NULL)
        job.channel.close(job.channel.self);
    return rc;
}

static void expect_file(void)
{
    char text[1024];
    FILE *file = fopen(name, "re");

    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    UNIT_STRING(text, "row,push_bytes,pull_bytes,contender,rank,sample,usec\n"
                      "4,64,32,ours,0,0,3.000000\n"
                      "4,64,32,ours,0,1,1.000000\n"
                      "4,64,32,ours,0,2,2.000000\n");
}

static void samples_are_written(void)
{
    struct perf_result r = {0};
    stepaf_boot_local_t *local;
    int status = -1;
    FILE *file;
    pid_t pid;

    CU_ASSERT_EQUAL_FATAL(stepaf_boot_local_create(RANKS, &local), STEPAF_OK);
    pid = fork();
    CU_ASSERT_NOT_EQUAL_FATAL(pid, -1);
    if (pid == 0)
        _exit(merge(local, 1, &r) != 0);
    CU_ASSERT_EQUAL(perf_samples_open(name, &file), 0);
    CU_ASSERT_EQUAL(merge(local, 0, &r), 0);
    CU_ASSERT_EQUAL(perf_samples_close(), 0);
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    CU_ASSERT_EQUAL(status, 0);
    CU_ASSERT_EQUAL(r.stats[PERF_OURS].n, SAMPLES);
    CU_ASSERT_DOUBLE_EQUAL(r.stats[PERF_OURS].avg, 2.0, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(r.cpu.host_us[PERF_OURS], 0.5, 1e-9);
    expect_file();
    stepaf_boot_local_destroy(local);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"samples are written", samples_are_written},
        CU_TEST_INFO_NULL,
    };
    int fd = mkstemp(name);

    if (fd < 0)
        return 99;
    close(fd);
    int failed = unit_run(tests);
    unlink(name);
    return failed;
}
