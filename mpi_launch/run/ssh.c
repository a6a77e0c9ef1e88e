/* SPDX-License-Identifier: Apache-2.0 */
#include "ssh.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"
#include "job.h"
#include "signals.h"
#include "ssh_fleet.h"

enum {
    END_MS = 5000, /* for a host to end its ranks, before its ssh is ended */
    AGAIN_MS = 20, /* between looks at hosts that cannot be waited for */
    CODE_SIGNALED = 128,
    CODE_TIMEOUT = 124,
    SSH_ITSELF = 255,
    LINE_MAX_BYTES = 1 << 16,
    SAY_MAX_BYTES = 1024,
    LAST_READS = 256 /* of what an ssh that has ended has left: more than a pipe holds */
};

static long long ssh_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Have all hosts end their ranks. */
static void end_fleet(struct fleet *fleet, int code)
{
    if (fleet->is_ending)
        return;
    fleet->is_ending = 1;
    fleet->code = code;
    fleet->end_ms = ssh_now_ms() + END_MS;
    for (int i = 0; i < fleet->hosts.n; i++) {
        if (fleet->remotes[i].in >= 0)
            close(fleet->remotes[i].in);
        fleet->remotes[i].in = -1;
    }
}

static void send_job(struct remote *remote)
{
    ssize_t sent = write(remote->in, remote->job + remote->sent, remote->job_bytes - remote->sent);

    if (sent > 0)
        remote->sent += (size_t)sent;
    else if (sent < 0 && errno != EAGAIN && errno != EINTR)
        remote->sent = remote->job_bytes; /* ssh has ended, and will say why */
}

static int poll_number(const struct fleet *fleet, int to)
{
    const struct stepaf_outlet *outlet = &fleet->outlets[to];

    return outlet->own >= 0 ? outlet->own : outlet->fd;
}

static int has_room(const struct fleet *fleet, int to)
{
    struct pollfd out = {.fd = poll_number(fleet, to), .events = POLLOUT};

    return poll(&out, 1, 0) > 0;
}

/* Whether standard output and standard error are one, such as a terminal: there, lines of both
 * follow each other. */
static int are_one(void)
{
    struct stat out, err;

    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

/* What was put last to @a to has ended its line, or not. */
static void note_line(struct fleet *fleet, int to, int is_midway)
{
    fleet->is_midway[to] = is_midway;
    if (are_one())
        fleet->is_midway[STDOUT_FILENO] = fleet->is_midway[STDERR_FILENO] = is_midway;
}

/* In a line of its own. A reader may have stopped, and the job has to end all the same: what there
 * is no room for is lost. */
static void say(struct fleet *fleet, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct fleet *fleet, const char *format, ...)
{
    char text[SAY_MAX_BYTES] = "\n";
    size_t bytes = fleet->is_midway[STDERR_FILENO] ? 1 : 0;
    va_list words;

    va_start(words, format);
    vsnprintf(text + bytes, sizeof(text) - bytes, format, words);
    va_end(words);
    for (const char *left = text; *left;) {
        ssize_t put = stepaf_outlet_put(&fleet->outlets[STDERR_FILENO], left, strlen(left));
        if (put <= 0)
            return;
        left += put;
        note_line(fleet, STDERR_FILENO, left[-1] != '\n');
    }
}

/* How much can go on: whole lines, so that those of several hosts do not mix; else the last one, or one that is too
 * long. */
static size_t ready_bytes(const struct stream *stream)
{
    const char *last = stream->have ? memrchr(stream->line, '\n', stream->have) : NULL;

    if (stream->is_over || (!last && stream->have == LINE_MAX_BYTES))
        return stream->have;
    return last ? (size_t)(last - stream->line) + 1 : 0;
}

/* The stream that is to be put to @a to now: the one that has begun, or the next one that has something; NULL: none. */
static struct stream *stream_to_put(struct fleet *fleet, int to)
{
    int n = 2 * fleet->hosts.n;
    struct stream *next = NULL;

    for (int i = 0; i < n; i++) {
        int at = (int)((fleet->turn + (unsigned)i) % (unsigned)n);
        struct stream *stream = &fleet->remotes[at / 2].streams[at % 2];
        if (stream->to != to)
            continue;
        if (stream->begun)
            return stream;
        if (!next && ready_bytes(stream))
            next = stream;
    }
    return next;
}

/* Put some of it. False: there is no room after all, or less than poll() has said. */
static int put_some(struct fleet *fleet, struct stream *stream)
{
    if (!stream->begun)
        stream->begun = ready_bytes(stream);
    size_t bytes = stream->begun - stream->put;
    ssize_t put = stepaf_outlet_put(&fleet->outlets[stream->to], stream->line + stream->put, bytes);

    if (put < 0 && (errno == EINTR || errno == EAGAIN)) {
        (void)poll(NULL, 0, errno == EAGAIN ? AGAIN_MS : 0);
        return 0;
    }
    if (put > 0)
        note_line(fleet, stream->to, stream->line[stream->put + (size_t)put - 1] != '\n');
    stream->put = put > 0 ? stream->put + (size_t)put : stream->begun; /* nobody reads any more */
    if (stream->put < stream->begun)
        return 1;
    memmove(stream->line, stream->line + stream->begun, stream->have - stream->begun);
    stream->have -= stream->begun;
    stream->begun = stream->put = 0;
    fleet->turn++;
    return 1;
}

/* All that there is room for. */
static void put_all(struct fleet *fleet)
{
    for (int to = STDOUT_FILENO; to <= STDERR_FILENO; to++) {
        struct stream *stream;
        while ((stream = stream_to_put(fleet, to)) && has_room(fleet, to) &&
               put_some(fleet, stream))
            ;
    }
}

/* Take in more. */
static void take_in(struct stream *stream)
{
    ssize_t got = read(stream->fd, stream->line + stream->have, LINE_MAX_BYTES - stream->have);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0) {
        stream->have += (size_t)got;
        return;
    }
    stream->is_over = 1;
    close(stream->fd);
    stream->fd = -1;
}

/* What has come is put first: then there is room for more. */
static int has_place(const struct stream *stream)
{
    return stream->fd >= 0 && !stream->begun && !ready_bytes(stream);
}

/* Its last words, as far as there is room for them. What it has left in the background may go on for ever. */
static void put_last(struct fleet *fleet, struct remote *remote)
{
    for (int s = 0; s < 2; s++) {
        struct stream *stream = &remote->streams[s];
        for (int i = 0; i < LAST_READS && has_place(stream); i++) {
            size_t had = stream->have;
            take_in(stream);
            if (stream->have == had)
                break;
            put_all(fleet);
        }
    }
    put_all(fleet);
}

/* An ssh has ended. */
static void note_remote(struct fleet *fleet, struct remote *remote, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : CODE_SIGNALED + WTERMSIG(status);

    remote->pid = 0;
    fleet->n_running--;
    put_last(fleet, remote);
    if (!fleet->is_ending && code == SSH_ITSELF)
        say(fleet, "stepaf-run: ssh to %s has failed, or was cut off: all ranks are ended\n",
            remote->name);
    else if (!fleet->is_ending && code == RUN_CODE_SILENT)
        say(fleet,
            "stepaf-run: %s has ended with %d, as where nothing is heard of stepaf-run for %d s: "
            "all ranks are ended\n",
            remote->name, code, RUN_SILENCE_S);
    else if (!fleet->is_ending && code)
        say(fleet, "stepaf-run: a rank on %s has ended with %d: all ranks are ended\n",
            remote->name, code);
    if (code)
        end_fleet(fleet, code);
}

static void reap_remotes(struct fleet *fleet)
{
    int status;

    for (int i = 0; i < fleet->hosts.n; i++)
        if (fleet->remotes[i].pid > 0 && waitpid(fleet->remotes[i].pid, &status, WNOHANG) > 0)
            note_remote(fleet, &fleet->remotes[i], status);
}

static void take_signal(struct fleet *fleet, int signals)
{
    struct signalfd_siginfo info;

    while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo != SIGCHLD)
            end_fleet(fleet, CODE_SIGNALED + (int)info.ssi_signo);
}

/* What is to be waited for: signals, standard output and error, and three descriptors for each
 * host. */
enum { POLLS = 3, HOST_POLLS = 3, OWN_FILES = 32 };

static void fill_polls(struct fleet *fleet, int signals, struct pollfd *polls)
{
    polls[0] = (struct pollfd){.fd = signals, .events = POLLIN};
    for (int to = STDOUT_FILENO; to <= STDERR_FILENO; to++)
        polls[to] = (struct pollfd){.fd = stream_to_put(fleet, to) ? poll_number(fleet, to) : -1,
                                    .events = POLLOUT};
    for (int i = 0; i < fleet->hosts.n; i++) {
        const struct remote *remote = &fleet->remotes[i];
        int is_told = remote->sent == remote->job_bytes;
        struct pollfd *of_host = polls + POLLS + HOST_POLLS * i;
        of_host[0] = (struct pollfd){.fd = is_told ? -1 : remote->in, .events = POLLOUT};
        for (int s = 0; s < 2; s++) {
            const struct stream *stream = &remote->streams[s];
            of_host[1 + s] =
                (struct pollfd){.fd = has_place(stream) ? stream->fd : -1, .events = POLLIN};
        }
    }
}

/* Streams of which something is to come, or to be put. */
static int streams_open(const struct fleet *fleet)
{
    int n = 0;

    for (int i = 0; i < 2 * fleet->hosts.n; i++) {
        const struct stream *stream = &fleet->remotes[i / 2].streams[i % 2];
        n += stream->fd >= 0 || stream->have > 0;
    }
    return n;
}

static int time_left(struct fleet *fleet, long long limit_ms)
{
    long long now_ms = ssh_now_ms();

    if (!fleet->is_ending && limit_ms && now_ms >= limit_ms) {
        say(fleet, "stepaf-run: not finished after %d s: all ranks are ended\n", fleet->timeout_s);
        end_fleet(fleet, CODE_TIMEOUT);
    }
    if (fleet->is_ending && now_ms >= fleet->end_ms) {
        for (int i = 0; i < fleet->hosts.n; i++)
            if (fleet->remotes[i].pid > 0)
                kill(-fleet->remotes[i].pid, SIGKILL);
        fleet->end_ms = now_ms + END_MS;
    }
    if (fleet->is_ending)
        return (int)(fleet->end_ms - now_ms);
    return limit_ms ? (int)(limit_ms - now_ms < INT_MAX ? limit_ms - now_ms : INT_MAX) : -1;
}

static void watch_host(struct remote *remote, const struct pollfd *polls)
{
    if (polls[0].revents)
        send_job(remote);
    for (int s = 0; s < 2; s++)
        if (polls[1 + s].revents)
            take_in(&remote->streams[s]);
}

static void watch_fleet(struct fleet *fleet, int signals)
{
    long long limit_ms = fleet->timeout_s ? ssh_now_ms() + fleet->timeout_s * 1000LL : 0;
    nfds_t n = POLLS + HOST_POLLS * (nfds_t)fleet->hosts.n;
    struct pollfd *polls = calloc(n, sizeof(*polls));

    /* A stream can outlive its ssh, where something in the background holds it. */
    while (polls && (fleet->n_running > 0 || (streams_open(fleet) && !fleet->is_ending))) {
        int left_ms = time_left(fleet, limit_ms), beat_ms = run_fleet_beat(fleet, ssh_now_ms());
        fill_polls(fleet, signals, polls);
        int n_ready = poll(polls, n, left_ms < 0 || left_ms > beat_ms ? beat_ms : left_ms);
        if (n_ready == 0 || (n_ready < 0 && errno == EINTR))
            continue;
        if (n_ready < 0) { /* no memory in the kernel: what is left is to end */
            say(fleet, "stepaf-run: cannot watch hosts: %s: all ranks are ended\n",
                strerror(errno));
            end_fleet(fleet, RUN_EXIT_NOT_RUN);
            (void)poll(NULL, 0, AGAIN_MS);
            polls[0].revents = POLLIN;
        }
        for (int i = 0; i < fleet->hosts.n; i++)
            watch_host(&fleet->remotes[i], polls + POLLS + HOST_POLLS * i);
        put_all(fleet);
        if (polls[0].revents) {
            take_signal(fleet, signals);
            reap_remotes(fleet);
        }
    }
    put_all(fleet);
    free(polls);
}

static int parse_line(int argc, char **argv, struct fleet *fleet)
{
    int option;

    if (argc < 2 || run_hosts_parse(argv[1], &fleet->hosts) != 0)
        return run_fail("--ssh: this is for stepaf-run's own use");
    while ((option = getopt(argc - 1, argv + 1, "+t:x:o:")) != -1) {
        if (option == 't')
            fleet->timeout_s = atoi(optarg);
        else if (option == 'x')
            run_words_add(&fleet->names, optarg);
        else if (option == 'o')
            run_words_add(&fleet->options, optarg);
        else
            return run_fail("--ssh: this is for stepaf-run's own use");
    }
    return optind < argc - 1 ? optind + 1 : run_fail("--ssh: no program is given");
}

/* Descriptors for all hosts. poll() takes no more entries than these either. */
static int make_room(struct fleet *fleet)
{
    rlim_t needed = OWN_FILES + (rlim_t)fleet->hosts.n * HOST_POLLS;
    struct rlimit files;

    getrlimit(RLIMIT_NOFILE, &fleet->files);
    files = fleet->files;
    if (files.rlim_max < needed)
        return run_fail(
            "%d hosts require %llu descriptors, but the limit of this process is %llu (ulimit -Hn)",
            fleet->hosts.n, (unsigned long long)needed, (unsigned long long)files.rlim_max);
    if (files.rlim_cur < needed)
        files.rlim_cur = needed;
    return setrlimit(RLIMIT_NOFILE, &files) == 0
               ? 0
               : run_fail("cannot raise the limit of descriptors for all hosts: %s",
                          strerror(errno));
}

static int prepare_fleet(int argc, char **argv, struct fleet *fleet)
{
    int at = parse_line(argc, argv, fleet);

    if (at < 0 || make_room(fleet) != 0)
        return -1;
    fleet->remotes = calloc((size_t)fleet->hosts.n, sizeof(*fleet->remotes));
    for (int i = 0; fleet->remotes && i < fleet->hosts.n; i++) {
        struct remote *remote = &fleet->remotes[i];
        *remote = (struct remote){.name = fleet->hosts.host[i].name, .in = -1};
        for (int s = 0; s < 2; s++) {
            remote->streams[s] = (struct stream){.fd = -1, .to = s ? STDERR_FILENO : STDOUT_FILENO};
            remote->streams[s].line = malloc(LINE_MAX_BYTES);
            if (!remote->streams[s].line)
                return run_fail("out of memory");
        }
    }
    return fleet->remotes ? run_fleet_make_jobs(fleet, argv + at) : run_fail("out of memory");
}

static void run_fleet(struct fleet *fleet)
{
    char *command = run_fleet_command();
    sigset_t before;
    int signals = run_signals_open(&before);

    signal(SIGPIPE, SIG_IGN);
    for (int to = STDOUT_FILENO; to <= STDERR_FILENO; to++)
        stepaf_outlet_open(&fleet->outlets[to], to);
    for (int i = 0; i < fleet->hosts.n && !fleet->is_ending; i++) {
        if (!command || signals < 0 ||
            run_fleet_start(fleet, &fleet->remotes[i], command, &before) != 0) {
            say(fleet, "stepaf-run: %s\n", run_fail_text());
            end_fleet(fleet, RUN_EXIT_NOT_RUN);
        } else {
            fleet->n_running++;
        }
    }
    watch_fleet(fleet, signals);
    for (int to = STDOUT_FILENO; to <= STDERR_FILENO; to++)
        stepaf_outlet_close(&fleet->outlets[to]);
    free(command);
}

int run_ssh(int argc, char **argv)
{
    struct fleet fleet = {.is_ending = 0};

    if (prepare_fleet(argc, argv, &fleet) == 0) {
        run_fleet(&fleet);
    } else {
        fprintf(stderr, "stepaf-run: %s\n", run_fail_text());
        fleet.code = RUN_EXIT_USAGE;
    }
    for (int i = 0; fleet.remotes && i < fleet.hosts.n; i++) {
        free(fleet.remotes[i].job);
        for (int s = 0; s < 2; s++)
            free(fleet.remotes[i].streams[s].line);
    }
    free(fleet.remotes);
    run_words_free(&fleet.names);
    run_words_free(&fleet.options);
    run_hosts_free(&fleet.hosts);
    return fleet.code;
}
