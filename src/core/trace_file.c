/* SPDX-License-Identifier: Apache-2.0 */
#include "core/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/quiet.h"
#include "base/time.h"
#include "core/clock_keep.h"
#include "core/lock.h"
#include "core/trace_read.h"

static const char file_head[] = "[\n", file_tail[] = "\n]\n", between[] = ",\n";

enum { HEAD = sizeof(file_head) - 1, TAIL = sizeof(file_tail) - 1, BETWEEN = sizeof(between) - 1 };
enum { NOW_PATIENCE_US = 1000000 }; /* of a rank that others wait for meanwhile */

bool stepaf_trace_file_is_on(const struct stepaf_ctx *ctx)
{
    return ctx->env.trace_file && ctx->env.trace_file[0] && ctx->trace.ring;
}

stepaf_status_t stepaf_trace_file_check(const struct stepaf_ctx *ctx)
{
    if (!stepaf_trace_file_is_on(ctx))
        return STEPAF_OK;
    int fd = stepaf_fd_open(ctx->env.trace_file, O_RDWR | O_CREAT);
    if (fd < 0)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_INIT,
                                "STEPAF_TRACE_FILE=%.200s: %s", ctx->env.trace_file,
                                strerror(errno));
    close(fd);
    return STEPAF_OK;
}

/* False: the name would be too long. */
static bool name_of_signal(const struct stepaf_ctx *ctx, uint32_t n, char *path)
{
    return snprintf(path, PATH_MAX, "%s.%u", ctx->env.trace_file, n) < PATH_MAX;
}

/* Whether there is such a file, which begins as a trace does. */
static bool is_trace(const char *path)
{
    char begin[HEAD];
    struct stat facts;
    int fd = stepaf_fd_open(path, O_RDONLY | O_NONBLOCK); /* it may be a FIFO */
    bool is = fd >= 0 && !fstat(fd, &facts) && S_ISREG(facts.st_mode) &&
              pread(fd, begin, HEAD, 0) == HEAD && !memcmp(begin, file_head, HEAD);

    if (fd >= 0)
        close(fd);
    return is;
}

uint32_t stepaf_trace_file_n_signals(const struct stepaf_ctx *ctx)
{
    char path[PATH_MAX];
    uint32_t n = 0;

    while (name_of_signal(ctx, n + 1, path) && is_trace(path))
        n++;
    return n;
}

/* Those that an earlier job has left. */
static void remove_earlier(const struct stepaf_ctx *ctx)
{
    char path[PATH_MAX];
    uint32_t n = stepaf_trace_file_n_signals(ctx);

    for (; n && name_of_signal(ctx, n, path); n--)
        (void)unlink(path);
}

void stepaf_trace_file_begin(struct stepaf_ctx *ctx, bool anew)
{
    static _Atomic uint32_t n_contexts;
    const struct stepaf_rank *ranks = ctx->job.ranks;
    int first = 0;

    ctx->trace.number = atomic_fetch_add(&n_contexts, 1);
    if (!stepaf_trace_file_is_on(ctx) || ctx->trace.number > 0 || !anew)
        return;
    while (ranks[first].node_id != ranks[ctx->job.boot.rank].node_id)
        first++;
    if (first != ctx->job.boot.rank)
        return;
    int fd = stepaf_fd_open(ctx->env.trace_file, O_RDWR | O_TRUNC);
    if (fd < 0)
        stepaf_log_warn("STEPAF_TRACE_FILE=%.200s: %s", ctx->env.trace_file, strerror(errno));
    else
        close(fd);
    if (ctx->env.trace_signal != STEPAF_ENV_TRACE_SIGNAL_none)
        remove_earlier(ctx);
}

/* Other ranks that add theirs are through soon, if they live. */
static bool lock_file(int fd, int64_t deadline_ns)
{
    const struct timespec pause = {0, 1000000};

    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        if (stepaf_monotonic_ns() > deadline_ns) {
            errno = ETIMEDOUT;
            return false;
        }
        nanosleep(&pause, NULL);
    }
    return true;
}

static bool write_all(int fd, const char *text, size_t bytes, off_t at)
{
    while (bytes > 0) {
        ssize_t n = pwrite(fd, text, bytes, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        bytes -= (size_t)n;
        at += n;
    }
    return true;
}

/* Where events go: behind those that are there, over the end. -1: it is no such file. */
static off_t find_end(int fd)
{
    char end[TAIL];
    off_t size = lseek(fd, 0, SEEK_END);

    if (size <= 0)
        return size;
    if (size < HEAD + TAIL || pread(fd, end, TAIL, size - TAIL) != TAIL ||
        memcmp(end, file_tail, TAIL) != 0) {
        errno = EILSEQ;
        return -1;
    }
    return size - TAIL;
}

/* @a text: events, with room for file_head or between before them, and file_tail behind. */
static bool append(int fd, char *text, size_t bytes, int64_t deadline_ns)
{
    if (!lock_file(fd, deadline_ns))
        return false;
    off_t at = find_end(fd);
    if (at < 0)
        return false;
    memcpy(text, at ? between : file_head, BETWEEN);
    if (write_all(fd, text, bytes, at))
        return true;
    int error = errno; /* a full disk: what others have written stays whole */
    if (stepaf_fd_resize(fd, (size_t)at) || (at && !write_all(fd, file_tail, TAIL, at)))
        stepaf_log_warn("STEPAF_TRACE_FILE: the file is cut off");
    errno = error;
    return false;
}

_Static_assert((int)HEAD == (int)BETWEEN, "either begins what is added");

/* This rank's events as text; NULL: out of memory. */
static char *make_text(const struct stepaf_ctx *ctx, size_t *bytes_p)
{
    size_t capacity = (size_t)ctx->trace.mask + 1;
    stepaf_trace_record_t *records = malloc(capacity * sizeof(*records));
    char *text = NULL;
    FILE *stream = records ? open_memstream(&text, bytes_p) : NULL;

    if (!stream) {
        free(records);
        return NULL;
    }
    size_t n = stepaf_trace_copy(ctx, records, sizeof(*records), capacity);
    fwrite(between, 1, BETWEEN, stream);
    stepaf_trace_events_print(ctx, records, n, stream);
    fwrite(file_tail, 1, TAIL, stream);
    bool good = !ferror(stream);
    good = !fclose(stream) && good;
    free(records);
    if (good)
        return text;
    free(text);
    return NULL;
}

/* @a text is freed. */
static void add_text(const struct stepaf_ctx *ctx, const char *path, char *text, size_t bytes,
                     int64_t patience_us)
{
    int64_t deadline_ns = stepaf_monotonic_ns() + patience_us * 1000;
    struct stepaf_quiet quiet;
    int fd = text ? stepaf_fd_open(path, O_RDWR | O_CREAT) : -1;

    stepaf_quiet_begin(&quiet); /* a limit of file sizes is no reason to end the process */
    if (fd < 0 || !append(fd, text, bytes, deadline_ns))
        stepaf_log_warn("STEPAF_TRACE_FILE=%.200s: world rank %d has not added its events: %s",
                        path, ctx->job.boot.rank, strerror(errno));
    stepaf_quiet_end(&quiet);
    if (fd >= 0)
        close(fd);
    free(text);
}

void stepaf_trace_file_add(struct stepaf_ctx *ctx)
{
    size_t bytes = 0;

    if (!stepaf_trace_file_is_on(ctx) || !ctx->job.ranks || !ctx->peers)
        return;
    stepaf_lock_enter(&ctx->lock); /* of the progress thread */
    stepaf_clock_refresh(ctx);
    errno = ENOMEM;
    char *text = make_text(ctx, &bytes);
    stepaf_lock_leave(&ctx->lock);
    add_text(ctx, ctx->env.trace_file, text, bytes, ctx->env.timeout_us);
}

void stepaf_trace_file_add_now(struct stepaf_ctx *ctx, uint32_t n)
{
    char path[PATH_MAX];
    size_t bytes = 0;

    if (!name_of_signal(ctx, n, path)) {
        stepaf_log_warn("STEPAF_TRACE_FILE=%.200s: its name is too long for one with a number",
                        ctx->env.trace_file);
        return;
    }
    stepaf_clock_refresh(ctx);
    errno = ENOMEM;
    char *text = make_text(ctx, &bytes);
    add_text(ctx, path, text, bytes, NOW_PATIENCE_US);
}
