/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges and barriers of the local bootstrap. */
#include "boot/boot_local.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/quiet.h"
#include "base/time.h"
#include "base/why.h"
#include "settings/settings.h"

int64_t stepaf_boot_local_meeting(int64_t deadline_ns)
{
    int64_t own_ns = stepaf_deadline_ns(stepaf_env_init_timeout_us());

    return own_ns < deadline_ns ? own_ns : deadline_ns;
}

bool stepaf_boot_local_are_ranks(const int *ranks, int n, int size)
{
    bool are_all = ranks && n >= 1 && n <= size;

    for (int i = 0; are_all && i < n; i++)
        are_all = ranks[i] >= 0 && ranks[i] < size;
    return are_all;
}

enum { LOOKS = 16 }; /* checks of missing ranks, a system call each, before the next wait */

/* A rank's wait in a meeting. */
struct visit {
    struct member *member;
    int channel;
    const int *ranks; /* NULL: all */
    int n;
    int next; /* the next of them to check */
};

/* Return whether @a rank has been counted in fewer meetings than this rank. */
static bool is_missing(const struct visit *visit, int rank)
{
    const struct slot *slots = visit->member->local->shared->slots;
    int channel = visit->channel;

    return (int32_t)(atomic_load(&slots[rank].visits[channel]) -
                     atomic_load(&slots[visit->member->rank].visits[channel])) < 0;
}

/* Return the first missing rank; -1 if all are there by now. */
static int first_missing(const struct visit *visit)
{
    for (int i = 0; i < visit->n; i++) {
        int rank = visit->ranks ? visit->ranks[i] : i;
        if (is_missing(visit, rank))
            return rank;
    }
    return -1;
}

/* Return whether a missing rank can never come: its process has ended, or has left. */
static int is_in_vain(void *arg)
{
    struct visit *visit = arg;
    const struct stepaf_boot_local *local = visit->member->local;

    for (int i = 0, looks = 0; i < visit->n && looks < LOOKS; i++) {
        int at = visit->next, rank = visit->ranks ? visit->ranks[at] : at;
        visit->next = (at + 1) % visit->n;
        if (!is_missing(visit, rank))
            continue;
        looks++;
        /* Check again: what the rank did before its end counts. */
        if (stepaf_boot_local_fate(local, rank) != STEPAF_LOCAL_LIVES && is_missing(visit, rank)) {
            atomic_store(&local->shared->ended[visit->channel], rank + 1);
            return 1;
        }
    }
    return 0;
}

static stepaf_status_t refuse_ended(const struct visit *visit, stepaf_phase_t phase,
                                    const char *what, int rank)
{
    bool has_left = stepaf_boot_local_fate(visit->member->local, rank) == STEPAF_LOCAL_LEFT;

    return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, phase, (struct stepaf_who){-1, -1, rank},
                                 "local bootstrap: %s: world rank %d has %s", what, rank,
                                 has_left ? "finalized" : "ended");
}

/* Make this process the rank, if it has been forked since. */
static void take_rank(struct member *member)
{
    pid_t pid = getpid();

    if (member->pid == pid)
        return;
    stepaf_boot_local_hold(member->local, member->rank);
    member->pid = pid;
}

/* Return the error where another rank has broken the meeting on its own. */
static stepaf_status_t refuse_broken(const struct shared *shared, int size, stepaf_phase_t phase,
                                     const char *what)
{
    int failed = phase == STEPAF_PHASE_BARRIER ? 0 : atomic_load(&shared->failed);

    if (failed < 1 || failed > size)
        return stepaf_error_set(
            STEPAF_ERR_BOOT, phase,
            "local bootstrap: %s: another rank has given up, in this call or an earlier one", what);
    return stepaf_error_set_peer(STEPAF_ERR_BOOT, phase, (struct stepaf_who){-1, -1, failed - 1},
                                 "local bootstrap: %s: world rank %d has failed: %.*s", what,
                                 failed - 1, STEPAF_LOCAL_WHY_MAX - 1, shared->why);
}

static stepaf_status_t meet(struct member *member, int channel, const int *ranks, int n,
                            int64_t deadline_ns)
{
    struct shared *shared = member->local->shared;
    int is_barrier = channel != CHANNEL_EXCHANGE;
    stepaf_phase_t phase = is_barrier ? STEPAF_PHASE_BARRIER : STEPAF_PHASE_NONE;
    const char *what = is_barrier ? "barrier" : "exchange";
    struct visit visit = {.member = member, .channel = channel, .ranks = ranks, .n = n};
    struct stepaf_meeting_watch watch = {&visit, is_in_vain,
                                         &shared->slots[member->rank].visits[channel]};

    take_rank(member);
    enum stepaf_meeting_result result =
        stepaf_meeting_join(&shared->meetings[channel], n, member->spin, &watch, deadline_ns);
    int ended = atomic_load(&shared->ended[channel]) - 1;
    if (result != STEPAF_MEETING_OK && ended >= 0 && ended < member->local->size)
        return refuse_ended(&visit, phase, what, ended);
    switch (result) {
    case STEPAF_MEETING_OK:
        return STEPAF_OK;
    case STEPAF_MEETING_BROKEN:
        return refuse_broken(shared, member->local->size, phase, what);
    case STEPAF_MEETING_TIMEOUT:
        break;
    }
    int missing = first_missing(&visit);
    if (missing < 0)
        return stepaf_error_set(STEPAF_ERR_TIMEOUT, phase,
                                "local bootstrap: %s: the last rank arrived too late", what);
    return stepaf_error_set_peer(STEPAF_ERR_TIMEOUT, phase, (struct stepaf_who){-1, -1, missing},
                                 "local bootstrap: %s: world rank %d did not arrive in time", what,
                                 missing);
}

/* Write all of @a data to the file at @a offset. */
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
                                    n < 0 ? stepaf_why(errno) : "no space left");
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

/* Compute where each rank's part starts, from the lengths that all ranks have published. */
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

/* Copy what all ranks have written. The last rank to do so frees the file's memory: no rank can be
 * writing yet, because the next exchange begins with a meeting that includes this rank. */
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
            stepaf_log_debug("local bootstrap: cannot truncate the exchange file: %s",
                             strerror(errno));
    }
    *block_p = block;
    return STEPAF_OK;
}

/* Return this rank's own result of an exchange. If it is a failure, no other rank can see why; the
 * first rank that fails publishes the reason. */
static stepaf_status_t own_status(struct member *member, stepaf_status_t status)
{
    struct shared *shared = member->local->shared;
    int none = 0, claimed = -1;

    if (status == STEPAF_OK || !atomic_compare_exchange_strong(&shared->failed, &none, claimed))
        return status;
    snprintf(shared->why, sizeof shared->why, "%.*s", STEPAF_LOCAL_WHY_MAX - 1,
             stepaf_last_error()->text);
    atomic_store(&shared->failed, member->rank + 1);
    return status;
}

stepaf_status_t stepaf_boot_local_allgather(void *self, const void *data, size_t bytes,
                                            void **all_p, size_t *offsets_p, int64_t timeout_us)
{
    struct member *member = self;
    struct stepaf_boot_local *local = member->local;
    int64_t deadline_ns = stepaf_deadline_ns(timeout_us);
    void *block = NULL;

    local->shared->slots[member->rank].bytes = bytes;
    stepaf_status_t status = meet(member, CHANNEL_EXCHANGE, NULL, local->size, deadline_ns);
    if (status == STEPAF_OK)
        status = own_status(member, compute_starts(member));
    if (status == STEPAF_OK)
        status = own_status(member, put(local->fds[STEPAF_LOCAL_EXCHANGE], data, bytes,
                                        member->starts[member->rank]));
    if (status == STEPAF_OK)
        status = meet(member, CHANNEL_EXCHANGE, NULL, local->size, deadline_ns);
    if (status == STEPAF_OK)
        status = own_status(member, collect_parts(member, &block));
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

    if ((unsigned)group > STEPAF_GROUP_FFN ||
        !stepaf_boot_local_are_ranks(ranks, n, member->local->size))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_BARRIER,
                                "local bootstrap: no group %d of %d ranks", (int)group, n);
    return meet(member, channels[group], ranks, n, stepaf_deadline_ns(timeout_us));
}
