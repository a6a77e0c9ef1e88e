/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap of processes forked by one program. They share a block of anonymous memory, where
 * they meet, and an anonymous file, which grows to what an exchange needs: both are inherited, so
 * nothing has a name that could be left behind. */
#define _GNU_SOURCE 1 /* memfd_create */

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stepaf/boot.h>

#include "base/error.h"
#include "base/log.h"
#include "base/time.h"
#include "boot/meeting.h"

/* The exchange and each group have a meeting of their own, so that one that broke takes no other
 * with it. */
enum { CHANNEL_EXCHANGE, CHANNEL_WORLD, CHANNEL_ATTENTION, CHANNEL_FFN, CHANNELS };

/* What one rank tells the others; written by it alone. */
struct slot {
    _Atomic uint64_t bytes;            /* of its part of the exchange under way */
    _Atomic uint32_t visits[CHANNELS]; /* meetings it has come to: names who is missing */
};

struct shared {
    struct stepaf_meeting meetings[CHANNELS];
    _Atomic int readers; /* that have copied the exchange under way */
    struct slot slots[];
};

struct stepaf_boot_local {
    int size;
    int fd;
    size_t map_bytes;
    struct shared *shared;
};

/* One rank's end: stepaf_boot_t's self. */
struct member {
    struct stepaf_boot_local *local;
    int rank;
    int spin;
    uint64_t *starts; /* size + 1 offsets, for the exchange under way */
};

static int64_t deadline_after(int64_t timeout_us)
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
    stepaf_phase_t phase = channel == CHANNEL_EXCHANGE ? STEPAF_PHASE_NONE : STEPAF_PHASE_BARRIER;

    atomic_fetch_add(&shared->slots[member->rank].visits[channel], 1);
    switch (stepaf_meeting_join(&shared->meetings[channel], n, member->spin, deadline_ns)) {
    case STEPAF_MEETING_OK:
        return STEPAF_OK;
    case STEPAF_MEETING_BROKEN:
        return stepaf_error_set(STEPAF_ERR_BOOT, phase,
                                "local bootstrap: another rank has given up, here or earlier");
    case STEPAF_MEETING_TIMEOUT:
        break;
    }
    int missing = first_missing(member, channel, ranks, n);
    if (missing < 0)
        return stepaf_error_set(STEPAF_ERR_TIMEOUT, phase,
                                "local bootstrap: the last rank came too late");
    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, phase, (struct stepaf_who){-1, -1, missing},
                                 "local bootstrap: world rank %d did not come in time", missing);
}

/* Write all of @a data at @a offset of the file. */
static stepaf_status_t put(int fd, const char *data, size_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t n = pwrite(fd, data, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_NONE,
                                    "local bootstrap: cannot write %zu bytes: %s", bytes,
                                    n < 0 ? strerror(errno) : "no room");
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
static stepaf_status_t lay_out(struct member *member)
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
static stepaf_status_t collect(struct member *member, void **block_p)
{
    struct stepaf_boot_local *local = member->local;
    size_t bytes = member->starts[local->size];
    char *block = malloc(bytes ? bytes : 1);
    if (!block)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE,
                                "local bootstrap: no memory for %zu bytes", bytes);
    stepaf_status_t status = get(local->fd, block, bytes);
    if (status != STEPAF_OK) {
        free(block);
        return status;
    }
    if (atomic_fetch_add(&local->shared->readers, 1) + 1 == local->size) {
        atomic_store(&local->shared->readers, 0);
        if (ftruncate(local->fd, 0) != 0)
            stepaf_log_debug("local bootstrap: cannot empty the file: %s", strerror(errno));
    }
    *block_p = block;
    return STEPAF_OK;
}

static stepaf_status_t local_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                       size_t *offsets_p, int64_t timeout_us)
{
    struct member *member = self;
    struct stepaf_boot_local *local = member->local;
    int64_t deadline_ns = deadline_after(timeout_us);
    void *block = NULL;

    local->shared->slots[member->rank].bytes = bytes;
    stepaf_status_t status = meet(member, CHANNEL_EXCHANGE, NULL, local->size, deadline_ns);
    if (status == STEPAF_OK)
        status = lay_out(member);
    if (status == STEPAF_OK)
        status = put(local->fd, data, bytes, member->starts[member->rank]);
    if (status == STEPAF_OK)
        status = meet(member, CHANNEL_EXCHANGE, NULL, local->size, deadline_ns);
    if (status == STEPAF_OK)
        status = collect(member, &block);
    if (status != STEPAF_OK) {
        stepaf_meeting_break(&local->shared->meetings[CHANNEL_EXCHANGE]);
        return status;
    }
    for (int rank = 0; rank <= local->size; rank++)
        offsets_p[rank] = member->starts[rank];
    *all_p = block;
    return STEPAF_OK;
}

static stepaf_status_t local_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                     int64_t timeout_us)
{
    static const int channels[] = {CHANNEL_WORLD, CHANNEL_ATTENTION, CHANNEL_FFN};
    struct member *member = self;
    if ((unsigned)group > STEPAF_GROUP_FFN || n < 1 || n > member->local->size)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_BARRIER,
                                "local bootstrap: no group %d of %d ranks", (int)group, n);
    return meet(member, channels[group], ranks, n, deadline_after(timeout_us));
}

static void local_close(void *self)
{
    struct member *member = self;
    free(member->starts);
    free(member);
}

stepaf_status_t stepaf_boot_local_create(int size, stepaf_boot_local_t **local_p)
{
    if (size < 1 || size > STEPAF_MEETING_MAX || !local_p)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_INIT,
                                "local bootstrap: size %d is not 1 to %d, or local_p is NULL", size,
                                STEPAF_MEETING_MAX);
    struct stepaf_boot_local *local = malloc(sizeof *local);
    if (!local)
        goto err;
    local->size = size;
    local->map_bytes = sizeof *local->shared + (size_t)size * sizeof local->shared->slots[0];
    local->shared =
        mmap(NULL, local->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (local->shared == MAP_FAILED)
        goto err_free;
    local->fd = memfd_create("stepaf-boot", MFD_CLOEXEC);
    if (local->fd < 0)
        goto err_unmap;
    *local_p = local;
    return STEPAF_OK;

err_unmap:
    munmap(local->shared, local->map_bytes);
err_free:
    free(local);
err:
    return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT,
                            "local bootstrap: no memory for %d ranks: %s", size, strerror(errno));
}

/* With more ranks than cores, a spinning rank keeps off its core the one that it waits for. */
static int cores_suffice(int size)
{
    cpu_set_t cpus;
    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) >= size;
}

stepaf_status_t stepaf_boot_local_attach(stepaf_boot_local_t *local, int rank, int app_number,
                                         stepaf_boot_t *boot_p)
{
    if (!local || !boot_p || rank < 0 || rank >= local->size)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_INIT,
                                "local bootstrap: rank %d is out of range, or an argument is NULL",
                                rank);
    struct member *member = malloc(sizeof *member);
    uint64_t *starts = malloc(((size_t)local->size + 1) * sizeof *starts);
    if (!member || !starts) {
        free(starts);
        free(member);
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT,
                                "local bootstrap: no memory to attach");
    }
    *member = (struct member){local, rank, cores_suffice(local->size), starts};
    *boot_p = (stepaf_boot_t){
        .name = "local",
        .self = member,
        .rank = rank,
        .size = local->size,
        .app_number = app_number < 0 ? -1 : app_number,
        .allgather = local_allgather,
        .barrier = local_barrier,
        .close = local_close,
    };
    return STEPAF_OK;
}

void stepaf_boot_local_destroy(stepaf_boot_local_t *local)
{
    if (!local)
        return;
    close(local->fd);
    munmap(local->shared, local->map_bytes);
    free(local);
}
