/* SPDX-License-Identifier: Apache-2.0 */
#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"
#include "job.h"
#include "signals.h"

enum { KILL_MS = 2000, LOOK_MS = 5000, SIGNALED = 128 };

struct service {
    struct run_host_job job;
    pid_t *pids; /* 0: it has ended */
    int n_running;
    int code;        /* of the first that has failed */
    int is_ending;   /* all have been asked to end */
    long long at_ms; /* when they are killed */
    /* How long stepaf-run may be silent, 0: for ever; and how long it has been. */
    long long silence_ms, silent_ms;
};

static long long serve_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void set_number(const char *name, int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    setenv(name, text, 1);
}

/* Become rank @a local of this host. */
static _Noreturn void become_rank(const struct service *service, int local, const sigset_t *mask)
{
    const struct run_host_job *job = &service->job;
    int nothing = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (nothing > 0) {
        dup2(nothing, STDIN_FILENO);
        close(nothing);
    }
    for (int i = 0; i < job->env.n; i++)
        putenv(job->env.word[i]);
    set_number("STEPAF_RANK", job->first + local);
    set_number("STEPAF_SIZE", job->size);
    set_number("LOCAL_RANK", local);
    set_number("LOCAL_WORLD_SIZE", job->ranks);
    execvp(job->words.word[0], job->words.word);
    _exit(run_fail_program(job->words.word[0]));
}

static void signal_all(const struct service *service, int number)
{
    for (int i = 0; i < service->job.ranks; i++)
        if (service->pids[i] > 0 && kill(-service->pids[i], number) != 0)
            kill(service->pids[i], number); /* it has not made its group yet */
}

static void end_service(struct service *service, int code)
{
    if (service->is_ending)
        return;
    service->is_ending = 1;
    service->code = code;
    service->at_ms = serve_now_ms() + KILL_MS;
    signal_all(service, SIGTERM);
}

static void start_ranks(struct service *service, const sigset_t *mask)
{
    for (int i = 0; i < service->job.ranks && !service->is_ending; i++) {
        pid_t pid = fork();
        if (pid == 0)
            become_rank(service, i, mask);
        if (pid < 0) {
            fprintf(stderr, "stepaf-run: cannot start rank %d: %s\n", service->job.first + i,
                    strerror(errno));
            end_service(service, RUN_EXIT_NOT_RUN);
        } else {
            service->pids[i] = pid;
            service->n_running++;
        }
    }
}

static void reap_ranks(struct service *service)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : SIGNALED + WTERMSIG(status);
        for (int i = 0; i < service->job.ranks; i++) {
            if (service->pids[i] != pid)
                continue;
            kill(-pid, SIGKILL); /* processes that it has left behind */
            service->pids[i] = 0;
            service->n_running--;
        }
        if (code != 0)
            end_service(service, code);
    }
}

/* Take what has arrived from stepaf-run. */
static void hear_run(struct service *service, struct pollfd *input)
{
    unsigned char beats[256];
    ssize_t got = read(input->fd, beats, sizeof(beats));

    service->silent_ms = 0;
    if (got > 0) {
        service->silence_ms = beats[got - 1] * 1000LL;
        return;
    }
    input->fd = -1;
    service->silence_ms = 0;
    end_service(service, SIGNALED + SIGTERM);
}

/* Nothing has arrived for @a ms. Of a time in which this process did not run, little counts: what
 * stepaf-run has sent meanwhile is still to be read. */
static void note_quiet(struct service *service, long long ms)
{
    service->silent_ms += ms < LOOK_MS ? ms : LOOK_MS;
    if (service->silence_ms && service->silent_ms >= service->silence_ms)
        end_service(service, RUN_CODE_SILENT);
}

/* Return for how long to wait, or -1 for ever. */
static int serve_wait_ms(struct service *service)
{
    long long left_ms = service->is_ending ? service->at_ms - serve_now_ms() : -1;
    long long quiet_ms = service->silence_ms - service->silent_ms;

    if (service->is_ending && left_ms <= 0) {
        signal_all(service, SIGKILL);
        service->at_ms = serve_now_ms() + KILL_MS;
        left_ms = KILL_MS;
    }
    if (service->is_ending || !service->silence_ms)
        return (int)left_ms;
    return (int)(quiet_ms < LOOK_MS ? quiet_ms : LOOK_MS);
}

static void watch_ranks(struct service *service, int signals)
{
    struct pollfd polls[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = signals, .events = POLLIN}};
    struct signalfd_siginfo info;

    while (service->n_running > 0) {
        int wait_ms = serve_wait_ms(service);
        long long before_ms = serve_now_ms();
        if (poll(polls, 2, wait_ms) < 0)
            polls[0].revents = polls[1].revents = 0;
        if (polls[0].revents)
            hear_run(service, &polls[0]);
        else
            note_quiet(service, serve_now_ms() - before_ms);
        if (polls[1].revents && read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info) &&
            info.ssi_signo != SIGCHLD)
            end_service(service, SIGNALED + (int)info.ssi_signo);
        reap_ranks(service);
    }
}

int run_serve(void)
{
    struct service service = {0};
    sigset_t before;

    if (run_job_read(STDIN_FILENO, &service.job) != 0) {
        fprintf(stderr, "stepaf-run: %s\n", run_fail_text());
        return RUN_EXIT_USAGE;
    }
    int signals = run_signals_open(&before);
    signal(
        SIGPIPE,
        SIG_IGN); /* whoever reads what this says may have gone; the ranks are to end all the same */
    service.pids = calloc((size_t)service.job.ranks, sizeof(*service.pids));
    if (signals < 0 || !service.pids || !service.job.directory) {
        fprintf(stderr, "stepaf-run: cannot watch ranks: %s\n", strerror(errno));
        return RUN_EXIT_NOT_RUN;
    }
    if (chdir(service.job.directory) != 0)
        fprintf(stderr, "stepaf-run: %s: %s: ranks start elsewhere\n", service.job.directory,
                strerror(errno));
    start_ranks(&service, &before);
    watch_ranks(&service, signals);
    close(signals);
    free(service.pids);
    run_job_free(&service.job);
    return service.code;
}
