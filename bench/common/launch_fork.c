/* SPDX-License-Identifier: Apache-2.0 */
/* The job as processes forked here: no launcher, no MPI. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch.h"

enum {
    POLL_US = 2000,
    ASKED_US = 500000,      /* time that those have to end who wanted to return */
    LEAVE_US = 2000000,     /* least time that the others have to follow one that failed */
    KILL_AFTER_US = 2000000 /* from asking a process to end to ending it */
};

/* The children, and what has become of them. */
struct children {
    const struct launch_params *params;
    pid_t *pids; /* 0 for those that have ended */
    int n;
    int left;
    int code;   /* to exit with */
    int failed; /* some ended with a code of its own that is not 0 */
    int victim; /* rank of the first that a signal has ended; -1 */
    int victim_signal;
    int64_t end_by_us; /* when those left over are ended; 0: never */
    int signals_sent;
    /* For those that are started again. */
    launch_body_t body;
    void *arg;
    char *address;  /* a page that all see */
    int *lives;     /* processes that each rank has had */
    int left_first; /* of these, those in their first that are left */
};

/* Contexts come one after the other and go through the program's own channel, so that the
 * library must not close it. */
static stepaf_status_t fork_join(struct launch *launch, const stepaf_params_t *params,
                                 stepaf_context_h *ctx_p)
{
    stepaf_boot_t boot = launch->channel;
    boot.close = NULL;
    return stepaf_init(&boot, params, ctx_p);
}

static int run_child(const struct children *children, stepaf_boot_local_t *local, int rank)
{
    const struct launch_params *params = children->params;
    struct launch launch = {
        .mpi_init_ns = -1, .missing = -1, .join = fork_join, .address = children->address};
    if (stepaf_boot_local_attach(local, rank, -1, &launch.channel) != STEPAF_OK) {
        fprintf(stderr, "%s: rank %d: %s\n", params->program, rank, stepaf_last_error()->text);
        return params->failed_code;
    }
    int code = children->body(&launch, children->arg);
    if (launch.channel.close)
        launch.channel.close(launch.channel.self);
    return code;
}

/* The process that takes rank @a rank's place. */
static int run_again(const struct children *children, int rank)
{
    char number[16];
    setenv("STEPAF_JOIN", children->address, 1);
    snprintf(number, sizeof(number), "%d", rank);
    setenv("STEPAF_RANK", number, 1);
    snprintf(number, sizeof(number), "%d", children->n);
    setenv("STEPAF_SIZE", number, 1);
    return launch_return(children->params, children->body, children->arg);
}

/* Who returns shows that it knows the job's secret. */
static int make_secret(const struct launch_params *params)
{
    unsigned char bytes[16];
    char text[2 * sizeof(bytes) + 1];
    if (!params->restarts || getenv("STEPAF_SECRET") || getenv("STEPAF_SECRET_FILE"))
        return 0;
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return -1;
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return setenv("STEPAF_SECRET", text, 1);
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static void signal_children(const struct children *children, int number)
{
    for (int i = 0; i < children->n; i++)
        if (children->pids[i] > 0)
            kill(children->pids[i], number);
}

/* From the first end that is no success on, the others have only so much time. */
static void limit_time(struct children *children, int64_t least_us)
{
    int64_t grace_us = children->params->grace_us;
    if (!children->end_by_us)
        children->end_by_us = now_us() + (grace_us > least_us ? grace_us : least_us);
}

/* A child of rank @a rank, which attaches to @a local, or takes the place if that is NULL. */
static int fork_child(struct children *children, int rank, stepaf_boot_local_t *local)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(children->params->failed_code);
        exit(local ? run_child(children, local, rank) : run_again(children, rank));
    }
    if (pid < 0) {
        fprintf(stderr, "%s: fork of rank %d: %s\n", children->params->program, rank,
                strerror(errno));
        return -1;
    }
    children->pids[rank] = pid;
    children->lives[rank]++;
    children->left++;
    return 0;
}

/* Whether a process that a signal has ended is one to start again. */
static int may_return(const struct children *children, int rank)
{
    return children->lives[rank] <= children->params->restarts && children->address[0] &&
           !children->end_by_us;
}

static void take_end(struct children *children, int rank, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : children->params->failed_code;
    int is_first = children->lives[rank] == 1;
    children->pids[rank] = 0;
    children->left--;
    children->left_first -= is_first;
    if (!WIFEXITED(status) && may_return(children, rank) && fork_child(children, rank, NULL) == 0)
        return;
    if (children->params->restarts && children->left_first == 0)
        children->end_by_us = now_us() + ASKED_US; /* nobody is left to take in who still asks */
    if (!is_first)
        return;
    if (code && !children->code)
        children->code = code;
    if (!WIFEXITED(status) && children->victim < 0) {
        children->victim = rank;
        children->victim_signal = WTERMSIG(status);
        limit_time(children, 0);
    } else if (WIFEXITED(status) && code) {
        children->failed = 1;
        limit_time(children, LEAVE_US);
    }
}

/* Take all that have ended; without blocking once a time is set at which the rest is ended. */
static int reap(struct children *children)
{
    int status;
    pid_t pid = waitpid(-1, &status, children->end_by_us ? WNOHANG : 0);
    if (pid < 0)
        return errno == EINTR ? 0 : -1;
    for (int rank = 0; pid > 0 && rank < children->n; rank++) {
        if (children->pids[rank] == pid) {
            take_end(children, rank, status);
            return 1;
        }
    }
    return pid > 0;
}

/* End what is left, first kindly. */
static void end_late(struct children *children)
{
    if (!children->end_by_us || now_us() < children->end_by_us)
        return;
    signal_children(children, children->signals_sent++ ? SIGKILL : SIGTERM);
    children->end_by_us = now_us() + KILL_AFTER_US;
}

static int wait_children(struct children *children)
{
    while (children->left > 0) {
        int taken = reap(children);
        if (taken < 0)
            return children->params->failed_code;
        if (taken)
            continue;
        end_late(children);
        nanosleep(&(struct timespec){0, POLL_US * 1000L}, NULL);
    }
    if (children->victim >= 0 && !children->failed)
        fprintf(stderr, "%s: rank %d was ended by signal %d (%s)\n", children->params->program,
                children->victim, children->victim_signal, strsignal(children->victim_signal));
    return children->code;
}

static int fork_all(struct children *children, stepaf_boot_local_t *local)
{
    fflush(NULL);
    for (int rank = 0; rank < children->n; rank++) {
        if (fork_child(children, rank, local)) {
            children->end_by_us = now_us();
            children->code = children->params->failed_code;
            children->failed = 1;
            break;
        }
        children->left_first++;
    }
    return wait_children(children);
}

int launch_fork(const struct launch_params *params, int n, launch_body_t body, void *arg)
{
    struct children children = {.params = params, .n = n, .victim = -1, .body = body, .arg = arg};
    stepaf_boot_local_t *local = NULL;
    if (stepaf_boot_local_create(n, &local) != STEPAF_OK) {
        fprintf(stderr, "%s: %s\n", params->program, stepaf_last_error()->text);
        return params->failed_code;
    }
    int code = params->failed_code;
    children.pids = calloc((size_t)n, sizeof(children.pids[0]));
    children.lives = calloc((size_t)n, sizeof(children.lives[0]));
    children.address =
        mmap(NULL, LAUNCH_ADDRESS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (children.pids && children.lives && children.address != MAP_FAILED &&
        make_secret(params) == 0)
        code = fork_all(&children, local);
    else
        fprintf(stderr, "%s: out of memory\n", params->program);
    free(children.pids);
    free(children.lives);
    if (children.address != MAP_FAILED)
        munmap(children.address, LAUNCH_ADDRESS_BYTES);
    stepaf_boot_local_destroy(local);
    return code;
}
