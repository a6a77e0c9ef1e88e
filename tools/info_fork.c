/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a job as forked processes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "info.h"

/* The started ranks would wait for the others until their deadline. */
static void end_ranks(const pid_t *pids, int n)
{
    for (int i = 0; i < n; i++)
        kill(pids[i], SIGKILL);
}

int info_fork(int size, info_rank_t run, void *arg)
{
    pid_t *pids = calloc((size_t)size, sizeof *pids);
    int started = 0;
    int done = 1;
    if (!pids) {
        perror("stepaf_info");
        return 0;
    }
    fflush(NULL);
    for (; started < size; started++) {
        pids[started] = fork();
        if (pids[started] == 0)
            _exit(!run(arg, started));
        if (pids[started] < 0) {
            perror("stepaf_info: fork");
            end_ranks(pids, started);
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        int status = 0;
        if (wait(&status) < 0 || status != 0)
            done = 0;
    }
    free(pids);
    return done && started == size;
}
