/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Start it in a process group of its own, so that its descendants can be killed with it. */
static int start(char *const argv[], int output, pid_t *pid_p)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);

    if (error)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (error)
        goto out_actions;
    if ((error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP)) ||
        (error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)) ||
        (error = posix_spawn_file_actions_adddup2(&actions, output, 1)) ||
        (error = posix_spawn_file_actions_adddup2(&actions, output, 2)))
        goto out;
    error = posix_spawnp(pid_p, argv[0], &actions, &attributes, argv, environ);
out:
    posix_spawnattr_destroy(&attributes);
out_actions:
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Read until the other end is closed; excess output is discarded. Returns 0, or an error number. */
static int read_all(int input, long long deadline_ms, char *text, size_t capacity)
{
    char surplus[512];
    size_t used = 0;

    text[0] = '\0';
    for (;;) {
        struct pollfd poller = {.fd = input, .events = POLLIN};
        long long left_ms = deadline_ms - now_ms();
        int ready = left_ms > 0 ? poll(&poller, 1, (int)left_ms) : 0;
        if (ready == 0)
            return ETIMEDOUT;
        int is_full = used + 1 >= capacity;
        ssize_t n = ready < 0 ? -1
                              : read(input, is_full ? surplus : text + used,
                                     is_full ? sizeof(surplus) : capacity - 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : 0;
        if (!is_full)
            used += (size_t)n;
        text[used] = '\0';
    }
}

/* It has closed its output, so it is about to exit. */
static int wait_end(pid_t pid, long long deadline_ms, int *status_p)
{
    for (;;) {
        pid_t ended = waitpid(pid, status_p, WNOHANG);
        if (ended == pid)
            return 0;
        if (ended < 0 && errno != EINTR)
            return errno;
        if (now_ms() >= deadline_ms)
            return ETIMEDOUT;
        poll(NULL, 0, 1);
    }
}

int run_probe(char *const argv[], int timeout_ms, char *text_p, size_t capacity)
{
    long long deadline_ms = now_ms() + timeout_ms;
    int ends[2];
    int status = 0;
    pid_t pid;

    text_p[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    int error = start(argv, ends[1], &pid);
    close(ends[1]);
    if (!error) {
        error = read_all(ends[0], deadline_ms, text_p, capacity);
        if (!error)
            error = wait_end(pid, deadline_ms, &status);
        if (error) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
        }
    }
    close(ends[0]);
    if (error) {
        errno = error;
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
