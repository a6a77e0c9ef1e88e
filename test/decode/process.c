/* SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 5, RANK_SECONDS = 60 };

static char scratch[] = "/tmp/stepaf_test_XXXXXX";
static int scratch_made;

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_scratch(void)
{
    nftw(scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *process_scratch(void)
{
    if (!scratch_made) {
        if (!mkdtemp(scratch)) {
            perror(scratch);
            exit(99);
        }
        scratch_made = 1;
        atexit(remove_scratch);
    }
    return scratch;
}

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : ".";
}

const char *process_program(void)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/stepaf_decode", from_environment("top_builddir"));
    return path;
}

const char *process_model(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/bench/decode/model/%s", from_environment("top_srcdir"), name);
    return path;
}

double process_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void become(const char *const *args, const struct process *process)
{
    /* These would make it believe that a launcher has started it, or how. */
    static const char *const misleading[] = {
        "OMPI_COMM_WORLD_SIZE", "PMIX_RANK",    "PMI_RANK",   "PMI_SIZE",
        "MPI_LOCALRANKID",      "STEPAF_SPLIT", "STEPAF_ROLE"};
    const char *argv[PROCESS_MAX_ARGS + 2] = {process_program()};
    int out = open(process->out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int err = open(process->err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int in = open("/dev/null", O_RDONLY);
    if (out < 0 || err < 0 || in < 0)
        _exit(99);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    for (size_t i = 0; i < sizeof(misleading) / sizeof(misleading[0]); i++)
        unsetenv(misleading[i]);
    for (int i = 0; i < PROCESS_MAX_ARGS && args[i]; i++)
        argv[i + 1] = args[i];
    execv(argv[0], (char *const *)argv);
    _exit(99);
}

void process_start(const char *const *args, struct process *process_p)
{
    static int number;
    number++;
    snprintf(process_p->out, sizeof(process_p->out), "%s/out%d", process_scratch(), number);
    snprintf(process_p->err, sizeof(process_p->err), "%s/err%d", process_scratch(), number);
    process_p->pid = fork();
    if (process_p->pid == 0)
        become(args, process_p);
    if (process_p->pid < 0) {
        perror("fork");
        exit(99);
    }
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

int process_wait(struct process *process, int seconds)
{
    double deadline = process_now() + seconds;
    int status;
    for (;;) {
        pid_t pid = waitpid(process->pid, &status, WNOHANG);
        if (pid == process->pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (pid < 0 && errno != EINTR)
            return -1;
        if (process_now() > deadline)
            break;
        pause_ms(POLL_MS);
    }
    kill(process->pid, SIGKILL); /* its ranks follow it */
    waitpid(process->pid, &status, 0);
    return -1;
}

int process_run(const char *const *args, int seconds, struct process *process_p)
{
    process_start(args, process_p);
    return process_wait(process_p, seconds);
}

/* Whether process @a pid is a child of @a parent and has the name @a name. */
static int is_child(const char *pid, pid_t parent, const char *name)
{
    char path[64];
    char text[512];
    snprintf(path, sizeof(path), "/proc/%.16s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[bytes] = '\0';
    char *begin = strchr(text, '(');
    char *end = strrchr(text, ')');
    int its_parent = 0;
    if (!begin || !end || sscanf(end + 1, " %*c %d", &its_parent) != 1)
        return 0;
    *end = '\0';
    return its_parent == parent && strcmp(begin + 1, name) == 0;
}

int process_ended(const struct process *process)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
}

/* By its name: a build directory's program begins as a shell script, which has other children. */
pid_t process_rank(const struct process *process, const char *name)
{
    double deadline = process_now() + RANK_SECONDS;
    while (process_now() < deadline && !process_ended(process)) {
        pid_t pid = 0;
        DIR *proc = opendir("/proc");
        for (struct dirent *entry; proc && !pid && (entry = readdir(proc));)
            if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
                is_child(entry->d_name, process->pid, name))
                pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (proc)
            closedir(proc);
        if (pid)
            return pid;
        pause_ms(POLL_MS);
    }
    return 0;
}

char *process_text(const char *path)
{
    FILE *file = fopen(path, "r");
    size_t capacity = 1 << 20;
    char *text = malloc(capacity + 1);
    size_t bytes = 0;
    if (!text) {
        perror("malloc");
        exit(99);
    }
    if (file) {
        bytes = fread(text, 1, capacity, file);
        fclose(file);
    }
    text[bytes] = '\0';
    return text;
}

int process_lines(const char *text)
{
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

void process_complain(const struct process *process, const char *format, ...)
{
    char *out = process_text(process->out);
    char *err = process_text(process->err);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n--- standard output\n%s--- standard error\n%s---\n", out, err);
    free(out);
    free(err);
}
