/* SPDX-License-Identifier: Apache-2.0 */
#include "html.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fail.h"

static const char program[] = "stepaf-report";

/* The program beside this one, else the one in PATH. */
static void find_program(char path_p[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", path_p, PATH_MAX - 1);
    char *slash;

    path_p[n > 0 ? n : 0] = '\0';
    slash = strrchr(path_p, '/');
    if (slash != NULL && (size_t)(slash + 1 - path_p) + sizeof(program) <= PATH_MAX) {
        memcpy(slash + 1, program, sizeof(program));
        if (access(path_p, X_OK) == 0)
            return;
    }
    memcpy(path_p, program, sizeof(program));
}

/* Run it and wait. Not with fork, which MPI libraries warn of. Returns its exit code, or -1 with
 * errno. @a quiet: discard its output. */
static int run_program(char *const *argv, int quiet)
{
    char path[PATH_MAX];
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    int rc;

    find_program(path);
    errno = posix_spawn_file_actions_init(&actions);
    if (errno != 0)
        return -1;
    rc = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO && rc == 0 && quiet; fd++)
        rc = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawnp(&pid, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) {
        errno = rc;
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Check whether @a name can be written; existing content stays, and no new file is left.
 * Anything but a regular file is not opened: a pipe may have no reader yet. -1 with a sentence. */
static int try_file(const char *name)
{
    struct stat was;
    int was_there = stat(name, &was) == 0;
    int is_special = was_there && !S_ISREG(was.st_mode) && !S_ISDIR(was.st_mode);
    int fd = is_special ? -1 : open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    char target[PATH_MAX];

    if (fd < 0 && (!is_special || access(name, W_OK) != 0))
        return perf_fail("--report: %s: %s", name, strerror(errno));
    if (fd >= 0)
        close(fd);
    /* A link to a missing file stays. */
    if (!was_there && realpath(name, target) != NULL)
        unlink(target);
    return 0;
}

int perf_html_ask(const char *report_file)
{
    char *const argv[] = {(char *)program, (char *)"--probe", NULL};
    int rc;

    if (try_file(report_file) != 0)
        return -1;
    rc = run_program(argv, 1);

    if (rc < 0)
        return perf_fail("--report: %s is neither beside stepaf_perf nor in PATH, or cannot be "
                         "run: %s",
                         program, strerror(errno));
    return rc == 0
               ? 0
               : perf_fail("--report requires Python 3 with matplotlib, which is missing: install "
                           "python3-matplotlib (Debian, Ubuntu, Fedora), or matplotlib with pip");
}

int perf_html_make(const char *json_file, const char *report_file)
{
    char *const argv[] = {(char *)program, (char *)"--output", (char *)report_file,
                          (char *)"--",    (char *)json_file,  NULL};
    int rc;

    fflush(NULL);
    rc = run_program(argv, 0);
    if (rc < 0)
        return perf_fail("--report: %s: %s", program, strerror(errno));
    return rc == 0 ? 0
                   : perf_fail("--report: %s has failed with exit code %d; what was measured is in "
                               "%s",
                               program, rc, json_file);
}
