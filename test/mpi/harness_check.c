/* SPDX-License-Identifier: Apache-2.0 */
/* Checks, and what a process can say about itself. */
#include "harness.h"

#include <dirent.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES_MAX = 20 };

static _Atomic int failures;
static _Atomic int skipped;
static int my_rank = -1;

void hs_set_rank(int rank)
{
    my_rank = rank;
}

/* One write, so that lines of several ranks do not mix. */
static void say(const char *text)
{
    char line[1024];
    int bytes = snprintf(line, sizeof line, "[rank %d] %s\n", my_rank, text);
    if (bytes >= (int)sizeof line)
        bytes = (int)sizeof line - 1;
    if (write(STDERR_FILENO, line, (size_t)bytes) < 0)
        return;
}

bool hs_report(const char *file, int line, const char *format, ...)
{
    char message[768], text[900];
    va_list arguments;
    const char *name = strrchr(file, '/');

    if (atomic_fetch_add(&failures, 1) >= MESSAGES_MAX)
        return false;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    snprintf(text, sizeof text, "%s:%d: %s", name ? name + 1 : file, line, message);
    say(text);
    return false;
}

bool hs_check_status(const char *file, int line, const char *call, stepaf_status_t is,
                     stepaf_status_t want)
{
    if (is == want)
        return true;
    return hs_report(file, line, "%s is %s, should be %s; last error: %s", call,
                     stepaf_status_name(is), stepaf_status_name(want),
                     is < 0 ? stepaf_last_error()->text : "-");
}

bool hs_check_refused(const char *file, int line, const char *call, stepaf_status_t is,
                      stepaf_status_t want)
{
    const stepaf_error_t *error = stepaf_last_error();

    if (is != want)
        return hs_check_status(file, line, call, is, want);
    if (error->status != is)
        return hs_report(file, line, "%s is %s but the last error says %s: \"%s\"", call,
                         stepaf_status_name(is), stepaf_status_name(error->status), error->text);
    if (error->text[0] == '\0' || strchr(error->text, '\n') != NULL)
        return hs_report(file, line, "%s is %s without one sentence: \"%s\"", call,
                         stepaf_status_name(is), error->text);
    return true;
}

void hs_skip(const char *format, ...)
{
    char message[512], text[600];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    snprintf(text, sizeof text, "SKIP: %s", message);
    if (atomic_exchange(&skipped, 1) == 0)
        say(text);
}

bool hs_failed(void)
{
    return atomic_load(&failures) > 0;
}

int hs_verdict(void)
{
    if (hs_failed())
        return HS_FAIL;
    return atomic_load(&skipped) ? HS_SKIP : HS_PASS;
}

int hs_slow(void)
{
    static _Atomic int factor;
    int now = atomic_load(&factor);

    if (now == 0) {
        const char *text = getenv("TEST_SLOW");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        now = 5;
#else
        now = 1;
#endif
        if (text != NULL && atoi(text) > 0)
            now = atoi(text);
        atomic_store(&factor, now);
    }
    return now;
}

int64_t hs_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void hs_sleep_us(int64_t us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* Ranks that mostly yielded to each other, millions of times, were seen to keep a third one from its
 * core for a minute (Linux 6.18). */
void hs_yield(void)
{
    static _Thread_local unsigned turns;

    if (++turns % 8 == 0)
        hs_sleep_us(1);
    else
        sched_yield();
}

static int count_entries(const char *path, const char *text)
{
    char link[512], target[512];
    struct dirent *entry;
    DIR *directory = opendir(path);
    int n = 0;

    if (directory == NULL)
        return -1;
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        if (text != NULL) {
            snprintf(link, sizeof link, "%s/%.200s", path, entry->d_name);
            ssize_t bytes = readlink(link, target, sizeof target - 1);
            target[bytes > 0 ? bytes : 0] = '\0';
            if (strstr(target, text) == NULL)
                continue;
        }
        n++;
    }
    closedir(directory);
    return n;
}

int hs_count_fds(void)
{
    return count_entries("/proc/self/fd", NULL) - 1; /* the directory itself */
}

int hs_count_threads(void)
{
    return count_entries("/proc/self/task", NULL);
}

int hs_count_links(pid_t pid, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    return count_entries(path, text);
}

int hs_count_mappings(pid_t pid, const char *text)
{
    char line[1024];
    int n = 0;

    snprintf(line, sizeof line, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(line, "r");
    if (maps == NULL)
        return -1;
    while (fgets(line, sizeof line, maps) != NULL)
        n += strstr(line, text) != NULL;
    fclose(maps);
    return n;
}

/* Not statm: the kernel brings that up to date when a thread has taken 64 pages, and counts pages
 * of programs' files, which come when they are used first. */
size_t hs_resident_bytes(void)
{
    FILE *rollup = fopen("/proc/self/smaps_rollup", "re");
    size_t total = 0, kib;
    char line[128];

    while (rollup != NULL && fgets(line, sizeof line, rollup) != NULL)
        if (sscanf(line, "Anonymous: %zu", &kib) == 1 || /* NOLINT(cert-err34-c) */
            sscanf(line, "Pss_Shmem: %zu", &kib) == 1)   /* NOLINT(cert-err34-c) */
            total += kib * 1024;
    if (rollup != NULL)
        (void)fclose(rollup);
    return total;
}
