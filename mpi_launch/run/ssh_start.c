/* SPDX-License-Identifier: Apache-2.0 */
/* The messages for hosts, and the start of their ssh. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "fail.h"
#include "job.h"
#include "ssh_fleet.h"

enum {
    FIRST_PORT =
        20000, /* of ports where rank 0 may be met: systems do not assign these by themselves */
    PORTS = 10000,
    SECRET_BYTES = 32
};

/* Set where ranks meet, and their secret: the user's, or drawn for this job. */
static int add_meeting(const struct fleet *fleet, struct run_words *env)
{
    unsigned char drawn[SECRET_BYTES + sizeof(unsigned short)];
    char secret[2 * SECRET_BYTES + 1];
    unsigned short number;

    if (getrandom(drawn, sizeof(drawn), 0) != (ssize_t)sizeof(drawn))
        return run_fail("cannot get random numbers: %s", strerror(errno));
    memcpy(&number, drawn + SECRET_BYTES, sizeof(number));
    for (int i = 0; i < SECRET_BYTES; i++)
        snprintf(secret + 2 * i, 3, "%02x", drawn[i]);
    run_words_add(env, "STEPAF_BOOT=tcp");
    if (!getenv("STEPAF_MEET"))
        run_words_addf(env, "STEPAF_MEET=%s:%d", fleet->hosts.host[0].name,
                       FIRST_PORT + number % PORTS);
    if (!getenv("STEPAF_SECRET") && !getenv("STEPAF_SECRET_FILE"))
        run_words_addf(env, "STEPAF_SECRET=%s", secret);
    return 0;
}

int run_fleet_make_jobs(struct fleet *fleet, char **words)
{
    struct run_host_job job = {.first = 0};
    char directory[PATH_MAX] = "/";
    int rc = add_meeting(fleet, &job.env);

    if (!getcwd(directory, sizeof(directory)))
        snprintf(directory, sizeof(directory), "/");
    job.directory = directory;
    for (int i = 0; i < fleet->hosts.n; i++)
        job.size += fleet->hosts.host[i].room;
    for (int i = 0; i < fleet->names.n; i++)
        if (getenv(fleet->names.word[i]) && strcmp(fleet->names.word[i], "STEPAF_BOOT") != 0)
            run_words_addf(&job.env, "%s=%s", fleet->names.word[i], getenv(fleet->names.word[i]));
    for (int i = 0; words[i]; i++)
        run_words_add(&job.words, words[i]);
    for (int i = 0; i < fleet->hosts.n && rc == 0; i++) {
        job.ranks = fleet->hosts.host[i].room;
        fleet->remotes[i].job = run_job_format(&job, &fleet->remotes[i].job_bytes);
        rc = fleet->remotes[i].job ? 0 : -1;
        job.first += job.ranks;
    }
    run_words_free(&job.env);
    run_words_free(&job.words);
    return rc;
}

/* The remote shell gets one command, which quotes this program's name. */
char *run_fleet_command(void)
{
    char self[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    FILE *stream = length > 0 ? open_memstream(&text, &bytes) : NULL;

    if (!stream)
        return NULL;
    self[length] = '\0';
    fputs("exec ", stream);
    run_quote(self, stream);
    fputs(" --serve", stream);
    fclose(stream);
    return text;
}

/* A pipe that is full has beats enough, and an ssh that has ended says why. */
int run_fleet_beat(struct fleet *fleet, long long now_ms)
{
    const unsigned char beat = RUN_SILENCE_S;

    for (int i = 0; i < fleet->hosts.n; i++) {
        struct remote *remote = &fleet->remotes[i];
        if (remote->in < 0 || remote->sent < remote->job_bytes || now_ms < remote->beat_ms)
            continue;
        (void)!write(remote->in, &beat, sizeof(beat));
        remote->beat_ms = now_ms + RUN_BEAT_MS;
    }
    return RUN_BEAT_MS;
}

static _Noreturn void become_ssh(const struct fleet *fleet, const char *host, const char *command,
                                 int pipes[3][2], const sigset_t *mask)
{
    struct run_words argv = {0};

    run_words_add(&argv, "ssh");
    run_words_add(&argv, "-T");
    run_words_add(&argv, "-oBatchMode=yes");
    for (int i = 0; i < fleet->options.n; i++)
        run_words_add(&argv, fleet->options.word[i]);
    /* Notice in 20 s that a host has vanished. ssh takes the first value of an option, so the user's
     * count. */
    run_words_add(&argv, "-oServerAliveInterval=5");
    run_words_add(&argv, "-oServerAliveCountMax=4");
    run_words_add(&argv, host);
    run_words_add(&argv, command);
    /* A signal from the terminal is for stepaf-run alone: ranks must end first. */
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, mask, NULL);
    signal(SIGPIPE, SIG_DFL);
    setrlimit(RLIMIT_NOFILE, &fleet->files);
    for (int i = 0; i < 3; i++)
        dup2(pipes[i][i == 0 ? 0 : 1], i);
    execvp(argv.word[0], argv.word);
    fprintf(stderr, "cannot run ssh: %s\n", strerror(errno));
    _exit(RUN_EXIT_NOT_FOUND);
}

int run_fleet_start(const struct fleet *fleet, struct remote *remote, const char *command,
                    const sigset_t *mask)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    int rc = 0;

    for (int i = 0; i < 3 && rc == 0; i++)
        rc = pipe2(pipes[i], O_CLOEXEC);
    if (rc == 0 && (remote->pid = fork()) == 0)
        become_ssh(fleet, remote->name, command, pipes, mask);
    if (rc != 0 || remote->pid < 0)
        rc = run_fail("cannot start ssh to %s: %s", remote->name, strerror(errno));
    remote->pid = rc == 0 ? remote->pid : 0;
    for (int i = 0; i < 3; i++) {
        int kept = pipes[i][i == 0 ? 1 : 0];
        close(pipes[i][i == 0 ? 0 : 1]);
        if (rc == 0)
            (void)fcntl(kept, F_SETFL, O_NONBLOCK);
        else
            close(kept);
        if (i == 0)
            remote->in = rc == 0 ? kept : -1;
        else
            remote->streams[i - 1].fd = rc == 0 ? kept : -1;
    }
    return rc;
}
