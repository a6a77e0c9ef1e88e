/* SPDX-License-Identifier: Apache-2.0 */
/* The local bootstrap at work: exchanges and barriers. */
#include "boot/boot_local.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/quiet.h"
#include "base/time.h"
#include "base/why.h"

int64_t stepaf_boot_local_deadline(int64_t timeout_us)
{
    int64_t now = stepaf_monotonic_ns();
    int64_t deadline;
    if (timeout_us < 0)
        timeout_us = 0;
    if (__builtin_mul_overflow(timeout_us, 1000, &deadline) ||
        __builtin_add_overflow(deadline, now, &deadline))
        return INT64_MAX;
    return deadline;
}

/* The first of @a ranks (NULL: of all) that has come to fewer meetings than this one; -1 if all
 * are there by now. */
static int first_missing(const struct member *member, int channel, const int *ranks, int n)
{
    const struct slot *slots = member->local->shared->slots;
    uint32_t mine = atomic_load(&slots[member->rank].visits[channel]);
    for (int i = 0; i < n; i++) {
        int rank = ranks ? ranks[i] : i;
        if ((int32_t)(atomic_load(&slots[rank].visits[channel]) - mine) < 0)
            return rank;
    }
    return -1;
}

static stepaf_status_t meet(struct member *member, int channel, const int *ranks, int n,
                            int64_t deadline_ns)
{
    struct shared *shared = member->local->shared;
    int is_barrier = channel != CHANNEL_EXCHANGE;
    stepaf_phase_t phase = is_barrier ? STEPAF_PHASE_BARRIER : STEPAF_PHASE_NONE;
    const char *what = is_barrier ? "barrier" : "exchange";

    atomic_fetch_add(&shared->slots[member->rank].visits[channel], 1);
    switch (stepaf_meeting_join(&shared->meetings[channel], n, member->spin, deadline_ns)) {
    case STEPAF_MEETING_OK:
        return STEPAF_OK;
    case STEPAF_MEETING_BROKEN:
        return stepaf_error_set(STEPAF_ERR_BOOT, phase,
                                "local bootstrap: %s: another rank has given up, here or earlier",
                                what);
    case STEPAF_MEETING_TIMEOUT:
        break;
    }
    int missing = first_missing(member, channel, ranks, n);
    if (missing < 0)
        return stepaf_error_set(STEPAF_ERR_TIMEOUT, phase,
                                "local bootstrap: %s: the last rank came too late", what);
    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, phase, (struct stepaf_who){-1, -1, missing},
                                 "local bootstrap: %s: world rank %d did not come in time", what,
                                 missing);
}

/* Write all of @a data at @a offset of the file. */
static stepaf_status_t put(int fd, const char *data, size_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        struct stepaf_quiet quiet;
        stepaf_quiet_begin(&quiet);
        ssize_t n = pwrite(fd, data, bytes, (off_t)offset);
        stepaf_quiet_end(&quiet);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_NONE,
                                    "local bootstrap: cannot write %zu bytes: %s", bytes,
                                    n < 0 ? stepaf_why(errno) : "no room");
        data += n;
        bytes -= (size_t)n;
        offset += (size_t)n;
    }
    return STEPAF_OK;
}

/* Read the first @a bytes bytes of the file. */
static stepaf_status_t get(int fd, char *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, data + done, bytes - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_NONE,
                                    "local bootstrap: cannot read %zu bytes: %s", bytes - done,
                                    n < 0 ? strerror(errno) : "the file ends early");
        done += (size_t)n;
    }
    return STEPAF_OK;
}

/* Where each rank's part starts, by the lengths that all have published. */
static stepaf_status_t compute_starts(struct member *member)
{
    const struct stepaf_boot_local *local = member->local;
    uint64_t total = 0;
    for (int rank = 0; rank < local->size; rank++) {
        member->starts[rank] = total;
        if (__builtin_add_overflow(total, local->shared->slots[rank].bytes, &total) ||
            total > SSIZE_MAX)
            return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_NONE,
                                    "local bootstrap: the exchange is too large");
    }
    member->starts[local->size] = total;
    return STEPAF_OK;
}

/* Copy what all have written. The last to do so gives the file's memory back: nobody can be
 * writing yet, because the next exchange begins with a meeting, this rank included. */
static stepaf_status_t collect_parts(struct member *member, void **block_p)
{
    struct stepaf_boot_local *local = member->local;
    size_t bytes = member->starts[local->size];
    char *block = malloc(bytes ? bytes : 1);
    if (!block)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE,
                                "local bootstrap: no memory for %zu bytes", bytes);
    stepaf_status_t status = get(local->fds[STEPAF_LOCAL_EXCHANGE], block, bytes);
    if (status != STEPAF_OK) {
        free(block);
        return status;
    }
    if (atomic_fetch_add(&local->shared->readers, 1) + 1 == local->size) {
        atomic_store(&local->shared->readers, 0);
        if (ftruncate(local->fds[STEPAF_LOCAL_EXCHANGE], 0) != 0)
            stepaf_log_debug("local bootstrap: cannot empty the file: %s", strerror(errno));
    }
    *block_p = block;
    return STEPAF_OK;
}

stepaf_status_t stepaf_boot_local_allgather(void *self, const void *data, size_t bytes,
                                            void **all_p, size_t *offsets_p, int64_t timeout_us)
{
    struct member *member = self;
    struct stepaf_boot_local *local = member->local;
    int64_t deadline_ns = stepaf_boot_local_deadline(timeout_us);
    void *block = NULL;

    local->shared->slots[member->rank].bytes = bytes;
    stepaf_status_t status = meet(member, CHANNEL_EXCHANGE, NULL, local->size, deadline_ns);
    if (status == STEPAF_OK)
        status = compute_starts(member);
    if (status == STEPAF_OK)
        status = put(local->fds[STEPAF_LOCAL_EXCHANGE], data, bytes, member->starts[member->rank]);
    if (status == STEPAF_OK)
        status = meet(member, CHANNEL_EXCHANGE, NULL, local->size, deadline_ns);
    if (status == STEPAF_OK)
        status = collect_parts(member, &block);
    if (status != STEPAF_OK) {
        stepaf_meeting_break(&local->shared->meetings[CHANNEL_EXCHANGE]);
        return status;
    }
    for (int rank = 0; rank <= local->size; rank++)
        offsets_p[rank] = member->starts[rank];
    *all_p = block;
    return STEPAF_OK;
}

stepaf_status_t stepaf_boot_local_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                          int64_t timeout_us)
{
    static const int channels[] = {CHANNEL_WORLD, CHANNEL_ATTENTION, CHANNEL_FFN};
    struct member *member = self;
    if ((unsigned)group > STEPAF_GROUP_FFN || n < 1 || n > member->local->size)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_BARRIER,
                                "local bootstrap: no group %d of %d ranks", (int)group, n);
    return meet(member, channels[group], ranks, n, stepaf_boot_local_deadline(timeout_us));
}
