/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_TRACE_FILE: the trace file at the end, and the numbered files of signals. */
#include "core/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "core/clock_keep.h"
#include "core/feature.h"
#include "core/lock.h"
#include "core/trace_read.h"
#include "core/trace_save.h"

bool stepaf_trace_file_is_on(const struct stepaf_ctx *ctx)
{
    return ctx->env.trace_file && ctx->env.trace_file[0] && ctx->trace.next;
}

stepaf_status_t stepaf_trace_file_check(const struct stepaf_ctx *ctx)
{
    if (!stepaf_trace_file_is_on(ctx))
        return STEPAF_OK;
    int fd = stepaf_fd_open(ctx->env.trace_file, O_RDWR | O_CREAT);
    if (fd < 0)
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                "STEPAF_TRACE_FILE=%.200s: %s", ctx->env.trace_file,
                                strerror(errno));
    close(fd);
    return STEPAF_OK;
}

/* Make the name of a signal's file. Return false if it would be too long. */
static bool name_of_signal(const struct stepaf_ctx *ctx, uint32_t n, char *path)
{
    return snprintf(path, PATH_MAX, "%s.%u", ctx->env.trace_file, n) < PATH_MAX;
}

/* Return whether a file exists and begins as a trace does. */
static bool is_trace(const char *path)
{
    char begin[sizeof(STEPAF_TRACE_HEAD) - 1];
    struct stat facts;
    int fd = stepaf_fd_open(path, O_RDONLY | O_NONBLOCK); /* it may be a FIFO */
    bool is = fd >= 0 && !fstat(fd, &facts) && S_ISREG(facts.st_mode) &&
              pread(fd, begin, sizeof(begin), 0) == sizeof(begin) &&
              !memcmp(begin, STEPAF_TRACE_HEAD, sizeof(begin));

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

/* Remove the files of signals of an earlier job. */
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

/* Return this rank's events as text; NULL: out of memory. */
static char *make_text(const struct stepaf_ctx *ctx, size_t *bytes_p)
{
    size_t capacity = stepaf_trace_size(&ctx->trace);
    stepaf_trace_record_t *records = malloc(capacity * sizeof(*records));
    char *text = NULL;
    FILE *stream = records ? open_memstream(&text, bytes_p) : NULL;

    if (!stream) {
        free(records);
        return NULL;
    }
    size_t n = stepaf_trace_copy(ctx, records, sizeof(*records), capacity);
    fputs(STEPAF_TRACE_BETWEEN, stream);
    stepaf_trace_events_print(ctx, records, n, stream);
    fputs(STEPAF_TRACE_TAIL, stream);
    bool good = !ferror(stream);
    good = !fclose(stream) && good;
    free(records);
    if (good)
        return text;
    free(text);
    return NULL;
}

/* Return how long to wait for a locked file: less than this rank waits for its own thread. So the
 * thread is abandoned only if the file system hangs. */
static int64_t patience_with_others_us(const struct stepaf_ctx *ctx)
{
    return ctx->env.timeout_us / 2;
}

void stepaf_trace_file_add(struct stepaf_ctx *ctx)
{
    size_t bytes = 0;

    if (!stepaf_trace_file_is_on(ctx) || !ctx->job.ranks || !ctx->peers)
        return;
    stepaf_lock_enter(&ctx->lock); /* against the progress thread */
    ctx->feature->refresh(ctx);
    stepaf_clock_refresh(ctx);
    errno = ENOMEM;
    char *text = make_text(ctx, &bytes);
    stepaf_lock_leave(&ctx->lock);
    struct stepaf_trace_text what = {.path = ctx->env.trace_file,
                                     .text = text,
                                     .bytes = bytes,
                                     .world_rank = ctx->job.boot.rank,
                                     .patience_us = patience_with_others_us(ctx)};
    stepaf_trace_save_end(stepaf_trace_save_begin(&what), ctx->env.timeout_us);
}

void stepaf_trace_file_add_now(struct stepaf_ctx *ctx, uint32_t n)
{
    char path[PATH_MAX];
    size_t bytes = 0;

    if (!name_of_signal(ctx, n, path)) {
        stepaf_log_warn("STEPAF_TRACE_FILE=%.200s: the name is too long to append a number",
                        ctx->env.trace_file);
        return;
    }
    ctx->feature->refresh(ctx);
    stepaf_clock_refresh(ctx);
    errno = ENOMEM;
    char *text = make_text(ctx, &bytes);
    struct stepaf_trace_text what = {.path = path,
                                     .text = text,
                                     .bytes = bytes,
                                     .world_rank = ctx->job.boot.rank,
                                     .patience_us = patience_with_others_us(ctx)};
    ctx->trace.saver = stepaf_trace_save_begin(&what);
}
