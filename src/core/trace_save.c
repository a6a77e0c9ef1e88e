/* SPDX-License-Identifier: Apache-2.0 */
/* Adding a rank's events to a shared trace file, by a thread. */
#include "core/trace_save.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/quiet.h"
#include "base/thread.h"
#include "base/time.h"

static const char file_head[] = STEPAF_TRACE_HEAD, file_tail[] = STEPAF_TRACE_TAIL,
                  between[] = STEPAF_TRACE_BETWEEN;

enum { HEAD = sizeof(file_head) - 1, TAIL = sizeof(file_tail) - 1, BETWEEN = sizeof(between) - 1 };

enum { NOW_PATIENCE_US = 1000000 }; /* of a rank that others wait for meanwhile */

_Static_assert((int)HEAD == (int)BETWEEN, "either begins what is added");

/* Lock the file. Other ranks that add their events finish soon, if they are alive. */
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

/* Find where events go: after the existing ones, over the tail. -1: the file is no trace. */
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

/* Append events. @a text has space for file_head or between before them, and file_tail after
 * them. */
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
    int error = errno; /* a full disk: the events of other ranks stay valid */
    if (stepaf_fd_resize(fd, (size_t)at) || (at && !write_all(fd, file_tail, TAIL, at)))
        stepaf_log_warn("STEPAF_TRACE_FILE: the file is truncated");
    errno = error;
    return false;
}

static void save_text(const struct stepaf_trace_text *what)
{
    int64_t deadline_ns = stepaf_deadline_ns(what->patience_us);
    struct stepaf_quiet quiet;
    int fd = what->text ? stepaf_fd_open(what->path, O_RDWR | O_CREAT) : -1;

    stepaf_quiet_begin(&quiet); /* exceeding a file size limit must not end the process */
    if (fd < 0 || !append(fd, what->text, what->bytes, deadline_ns))
        stepaf_log_warn("STEPAF_TRACE_FILE=%.200s: world rank %d has not added its events: %s",
                        what->path, what->world_rank, strerror(errno));
    stepaf_quiet_end(&quiet);
    if (fd >= 0)
        close(fd);
    free(what->text);
}

/* ---- by a thread ---- */

enum saver_state { WRITES, WRITTEN, ABANDONED };

struct stepaf_trace_saver {
    pthread_t thread;
    _Atomic int state;
    struct stepaf_trace_text what;
    char path[];
};

static void *write_main(void *arg)
{
    struct stepaf_trace_saver *saver = arg;

    save_text(&saver->what);
    if (atomic_exchange(&saver->state, WRITTEN) == ABANDONED)
        free(saver);
    return NULL;
}

struct stepaf_trace_saver *stepaf_trace_save_begin(const struct stepaf_trace_text *what)
{
    struct stepaf_trace_saver *saver =
        what->text ? malloc(sizeof(*saver) + strlen(what->path) + 1) : NULL;

    if (saver) {
        saver->state = WRITES;
        saver->what = *what;
        saver->what.path = strcpy(saver->path, what->path);
    }
    if (!saver || stepaf_thread_start(&saver->thread, write_main, saver)) {
        struct stepaf_trace_text now = *what;
        if (now.patience_us > NOW_PATIENCE_US)
            now.patience_us = NOW_PATIENCE_US;
        free(saver);
        save_text(&now);
        return NULL;
    }
    return saver;
}

bool stepaf_trace_save_is_over(struct stepaf_trace_saver *saver)
{
    if (atomic_load(&saver->state) != WRITTEN)
        return false;
    pthread_join(saver->thread, NULL);
    free(saver);
    return true;
}

void stepaf_trace_save_end(struct stepaf_trace_saver *saver, int64_t patience_us)
{
    const struct timespec pause = {0, 1000000};
    int64_t deadline_ns = stepaf_deadline_ns(patience_us);
    pthread_t thread;

    while (saver && !stepaf_trace_save_is_over(saver)) {
        if (stepaf_monotonic_ns() < deadline_ns) {
            nanosleep(&pause, NULL);
            continue;
        }
        stepaf_log_warn("STEPAF_TRACE_FILE=%.200s: world rank %d still writes its events",
                        saver->path, saver->what.world_rank);
        thread = saver->thread;
        if (atomic_exchange(&saver->state, ABANDONED) == WRITTEN) {
            pthread_join(thread, NULL);
            free(saver);
        } else {
            pthread_detach(thread);
        }
        return;
    }
}
