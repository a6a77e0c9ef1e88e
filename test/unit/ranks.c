/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

struct job {
    stepaf_boot_local_t *local;
    rank_body_t body;
    void *arg;
};

int rank_wrong(const stepaf_boot_t *boot, const char *file, int line, const char *what)
{
    fprintf(stderr, "\n    %s:%d: rank %d of %d: not so: %s (%s)\n", file, line, boot->rank,
            boot->size, what, stepaf_last_error()->text);
    return 1;
}

static int run_rank(const struct job *job, int rank)
{
    stepaf_boot_t boot;
    if (stepaf_boot_local_attach(job->local, rank, rank % 2, &boot) != STEPAF_OK)
        return 1;
    int failed = job->body(&boot, job->arg);
    boot.close(boot.self);
    return failed;
}

void ranks_run(int size, rank_body_t body, void *arg, int *statuses_p)
{
    struct job job = {.body = body, .arg = arg};
    pid_t children[RANKS_MAX];
    CU_ASSERT_EQUAL_FATAL(stepaf_boot_local_create(size, &job.local), STEPAF_OK);
    for (int rank = 0; rank < size; rank++) {
        children[rank] = fork();
        CU_ASSERT_FATAL(children[rank] >= 0);
        if (children[rank] == 0)
            _exit(run_rank(&job, rank));
    }
    for (int rank = 0; rank < size; rank++)
        waitpid(children[rank], &statuses_p[rank], 0);
    stepaf_boot_local_destroy(job.local);
}

void ranks_expect_processes(int size, rank_body_t body, void *arg)
{
    int statuses[RANKS_MAX];
    ranks_run(size, body, arg, statuses);
    for (int rank = 0; rank < size; rank++)
        CU_ASSERT_EQUAL(statuses[rank], 0);
}

struct thread {
    const struct job *job;
    int rank;
    int failed;
};

static void *run_thread(void *arg)
{
    struct thread *thread = arg;
    thread->failed = run_rank(thread->job, thread->rank);
    return NULL;
}

void ranks_expect_threads(int size, rank_body_t body, void *arg)
{
    struct job job = {.body = body, .arg = arg};
    struct thread threads[RANKS_MAX];
    pthread_t ids[RANKS_MAX];
    CU_ASSERT_EQUAL_FATAL(stepaf_boot_local_create(size, &job.local), STEPAF_OK);
    for (int rank = 0; rank < size; rank++) {
        threads[rank] = (struct thread){&job, rank, 0};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&ids[rank], NULL, run_thread, &threads[rank]), 0);
    }
    for (int rank = 0; rank < size; rank++) {
        pthread_join(ids[rank], NULL);
        CU_ASSERT_EQUAL(threads[rank].failed, 0);
    }
    stepaf_boot_local_destroy(job.local);
}
