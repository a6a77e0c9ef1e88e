/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/outlet.h"
#include "base/quiet.h"
#include "base/time.h"
#include "base/why.h"

enum {
    LINE_MAX_BYTES = 1024,
    TIME_BYTES = sizeof "2026-01-01T00:00:00.000Z",
    AGAIN_MS = 5,
    ROOM_US = 1000000 /* to wait for room, once */
};

int stepaf_log_level_now = STEPAF_LOG_WARN;

/* Where lines go. One lock for all of it: it also keeps the user's callback from being entered
 * twice at once. Logging is never on the hot path. */
static struct {
    pthread_mutex_t lock;
    int fd;         /* of the log file, or -1 for standard error */
    bool stalled;   /* nobody took the last line: the next ones are not waited with */
    bool is_midway; /* of the last line only the beginning was taken */
    int rank;
    stepaf_log_cb_t callback;
    void *callback_arg;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .rank = -1};

/* A thread that is canceled in between, which may be wherever it writes or waits, would keep the
 * lock. Return what it is to be unlocked with. */
static int lock_sink(void)
{
    int cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&sink.lock);
    return cancel_state;
}

static void unlock_sink(int cancel_state)
{
    pthread_mutex_unlock(&sink.lock);
    pthread_setcancelstate(cancel_state, &cancel_state);
}

void stepaf_log_forked(void)
{
    static const pthread_mutex_t is_free = PTHREAD_MUTEX_INITIALIZER;

    sink.lock = is_free;
    sink.stalled = sink.is_midway = false;
}

void stepaf_log_set_callback(stepaf_log_cb_t callback, void *arg)
{
    int cancel_state = lock_sink();
    sink.callback = callback;
    sink.callback_arg = arg;
    unlock_sink(cancel_state);
}

void stepaf_log_set_rank(int rank)
{
    int cancel_state = lock_sink();
    sink.rank = rank;
    unlock_sink(cancel_state);
}

static const char *level_name(stepaf_log_level_t level)
{
    static const char *const names[] = {"NONE", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"};
    return level >= STEPAF_LOG_NONE && level <= STEPAF_LOG_TRACE ? names[level] : "?";
}

/* Where the compiler was called from is of no interest: the last part of the path will do. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Wait until there is room, but not for long: who reads may have stopped. */
static bool has_room(int fd, int64_t deadline_ns)
{
    struct pollfd wanted = {.fd = fd, .events = POLLOUT};
    int n;

    while ((n = poll(&wanted, 1, (int)(stepaf_left_us(deadline_ns) / 1000))) < 0 &&
           errno == EINTR) {
    }
    return n != 0;
}

/* How much of it has been written by then. */
static size_t write_by(const struct stepaf_outlet *outlet, const char *text, size_t bytes,
                       int64_t deadline_ns)
{
    size_t put = 0;

    while (put < bytes) {
        if (!has_room(outlet->own >= 0 ? outlet->own : outlet->fd, deadline_ns)) {
            sink.stalled = true;
            break;
        }
        ssize_t done = stepaf_outlet_put(outlet, text + put, bytes - put);
        if (done > 0) {
            put += (size_t)done;
        } else if (done == 0 || (errno != EINTR && errno != EAGAIN)) {
            break;
        } else if (stepaf_left_us(deadline_ns) == 0) {
            sink.stalled = true;
            break;
        } else if (errno == EAGAIN) {
            (void)poll(NULL, 0, AGAIN_MS); /* it is ready, for less than that */
        }
    }
    return put;
}

/* A line that cannot be written is lost: there is nowhere left to complain. What is put behind the
 * beginning of one would look like its end. */
static void write_line(const char *line, size_t bytes)
{
    struct stepaf_outlet outlet = {.fd = sink.fd, .own = -1, .most = STEPAF_OUTLET_BYTES};
    int64_t deadline_ns = stepaf_deadline_ns(sink.stalled ? 0 : ROOM_US);
    struct stepaf_quiet quiet;

    stepaf_quiet_begin(&quiet);
    if (sink.fd < 0)
        stepaf_outlet_open(&outlet, STDERR_FILENO);
    while (!stepaf_outlet_lock(&outlet) && stepaf_left_us(deadline_ns) > 0)
        (void)poll(NULL, 0, 1);
    sink.stalled = false;
    if (sink.is_midway && write_by(&outlet, "\n", 1, deadline_ns) == 1)
        sink.is_midway = false;
    if (!sink.is_midway) {
        size_t put = write_by(&outlet, line, bytes, deadline_ns);
        sink.is_midway = put > 0 && put < bytes;
    }
    stepaf_outlet_close(&outlet);
    stepaf_quiet_end(&quiet);
}

/* Everything after the line's beginning would look like another line's: keep it one line. */
static void join_lines(char *text)
{
    for (; *text; text++)
        if (*text == '\n' || *text == '\r')
            *text = ' ';
}

/* UTC, so that lines of several hosts can be put in order, and beside those of others. */
static void print_time(char text_p[TIME_BYTES])
{
    struct timespec now = {0};
    struct tm parts = {0};
    char seconds[TIME_BYTES - sizeof ".999Z" + 1];

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &parts);
    if (!strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts))
        seconds[0] = '\0';
    snprintf(text_p, TIME_BYTES, "%s.%03uZ", seconds, (unsigned)(now.tv_nsec / 1000000) % 1000);
}

/* The host name is asked for anew each time, because a process may change its UTS namespace; at
 * this rate the cost does not matter. */
static void write_message(stepaf_log_level_t level, const char *file, int line, const char *message)
{
    char host[HOST_NAME_MAX + 1] = "?";
    gethostname(host, sizeof host);
    host[sizeof host - 1] = '\0';

    char rank[16] = "-";
    if (sink.rank >= 0)
        snprintf(rank, sizeof rank, "%d", sink.rank);

    char time[TIME_BYTES];
    print_time(time);

    char text[LINE_MAX_BYTES];
    int n = snprintf(text, sizeof text - 1, "%s [%s:%ld %s] %s:%d %s %s", time, host,
                     (long)getpid(), rank, file, line, level_name(level), message);
    if (n < 0)
        return;
    size_t bytes = (size_t)n < sizeof text - 1 ? (size_t)n : sizeof text - 2;
    text[bytes++] = '\n';
    write_line(text, bytes);
}

void stepaf_log_write(stepaf_log_level_t level, const char *file, int line, const char *format, ...)
{
    int saved_errno = errno;
    char message[LINE_MAX_BYTES - 128];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    join_lines(message);

    int cancel_state = lock_sink();
    if (sink.callback)
        sink.callback(level, base_name(file), line, message, sink.callback_arg);
    else
        write_message(level, base_name(file), line, message);
    unlock_sink(cancel_state);
    errno = saved_errno;
}

/* Return how many bytes of @a text to write at a time: as many whole lines as a pipe takes in one
 * piece. */
static size_t lines_at_once(const char *text)
{
    size_t bytes = strnlen(text, STEPAF_OUTLET_BYTES);
    const char *end = text[bytes] ? memrchr(text, '\n', bytes) : NULL;

    return end ? (size_t)(end - text) + 1 : bytes;
}

void stepaf_log_print(const char *text)
{
    char line[LINE_MAX_BYTES];

    int cancel_state = lock_sink();
    while (!sink.callback && *text) { /* each part has its own time */
        size_t bytes = lines_at_once(text);
        write_line(text, bytes);
        text += bytes;
    }
    while (sink.callback && *text) {
        size_t bytes = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(bytes < sizeof line ? bytes : sizeof line), text);
        sink.callback(STEPAF_LOG_INFO, base_name(__FILE__), __LINE__, line, sink.callback_arg);
        text += bytes + (text[bytes] == '\n');
    }
    unlock_sink(cancel_state);
}

/* Write @a file to @a path with each %p replaced by the process id. Return 0 if it does not fit. */
static int expand_path(const char *file, char *path, size_t capacity)
{
    size_t used = 0;
    for (const char *c = file; *c;) {
        int n;
        if (c[0] == '%' && c[1] == 'p') {
            n = snprintf(path + used, capacity - used, "%ld", (long)getpid());
            c += 2;
        } else {
            n = snprintf(path + used, capacity - used, "%c", *c);
            c += 1;
        }
        used += (size_t)n;
        if (used >= capacity)
            return 0;
    }
    return 1;
}

/* Of a file that standard output or error goes to, as with /dev/stdout, another descriptor would
 * have a place of its own in it, and the program's lines would be written over ours. Return one
 * that shares the program's, and close @a fd. */
static int share_standard(int fd)
{
    struct stat own, standard;
    if (fd < 0 || fstat(fd, &own) != 0 || !S_ISREG(own.st_mode))
        return fd;
    for (int number = STDOUT_FILENO; number <= STDERR_FILENO; number++) {
        if (fstat(number, &standard) != 0 || standard.st_dev != own.st_dev ||
            standard.st_ino != own.st_ino)
            continue;
        int shared = fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (shared < 0)
            return fd;
        close(fd);
        return shared;
    }
    return fd;
}

static int open_file(const char *file)
{
    char path[PATH_MAX];
    if (!expand_path(file, path, sizeof path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    /* O_NONBLOCK: a FIFO is opened only if somebody reads there, and never waited for. */
    return share_standard(
        stepaf_fd_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY));
}

void stepaf_log_configure(stepaf_log_level_t level, const char *file)
{
    int fd = -1;
    int error = 0;
    if (file && *file) {
        fd = open_file(file);
        error = fd < 0 ? errno : 0;
    }

    int cancel_state = lock_sink();
    int old_fd = sink.fd;
    sink.fd = fd;
    sink.stalled = sink.is_midway = false;
    __atomic_store_n(&stepaf_log_level_now, (int)level, __ATOMIC_RELAXED);
    unlock_sink(cancel_state);
    if (old_fd >= 0)
        close(old_fd);
    if (error)
        stepaf_log_error("cannot open log file %s: %s", file,
                         error == ENXIO ? "no process reads from it" : stepaf_why(error));
}
