/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the local bootstrap: what the ranks share, who makes it, and how ranks that do not
 * inherit it get it. */
#ifndef STEPAF_BOOT_BOOT_LOCAL_H
#define STEPAF_BOOT_BOOT_LOCAL_H

#include <stdbool.h>
#include <sys/types.h>

#include <stepaf/boot.h>

#include "boot/meeting.h"

/* The exchange and each group have a meeting of their own, so that a broken meeting does not break
 * another. */
enum { CHANNEL_EXCHANGE, CHANNEL_WORLD, CHANNEL_ATTENTION, CHANNEL_FFN, CHANNELS };

/* Whether a rank's process is there: see boot_local_watch.c. */
enum {
    SLOT_EMPTY,
    SLOT_HELD,      /* while its lock is held */
    SLOT_UNWATCHED, /* for good: its process may end, or be another rank, without a sign */
    SLOT_LEFT       /* in good order */
};

/* What one rank shows the others; written by that rank only, except for SLOT_UNWATCHED. */
struct slot {
    _Atomic uint64_t bytes;            /* of its part of the exchange in progress */
    _Atomic uint64_t holder;           /* its process */
    _Atomic uint32_t presence;         /* SLOT_... */
    _Atomic uint32_t visits[CHANNELS]; /* how often it has been counted in: shows who is missing */
};

enum { STEPAF_LOCAL_WHY_MAX = 160 };

struct shared {
    struct stepaf_meeting meetings[CHANNELS];
    _Atomic int ended[CHANNELS]; /* 1 + the rank whose end broke the meeting; 0: none */
    _Atomic int failed;          /* 1 + the rank that could not go on in an exchange; 0: none */
    char why[STEPAF_LOCAL_WHY_MAX];
    _Atomic int readers; /* how many have copied the exchange in progress */
    struct slot slots[];
};

/* Files without names. One is mapped: ranks meet there. The other grows to what an exchange
 * needs. */
enum { STEPAF_LOCAL_MAP, STEPAF_LOCAL_EXCHANGE, STEPAF_LOCAL_FILES };

struct stepaf_boot_local {
    int size;
    int fds[STEPAF_LOCAL_FILES];
    size_t map_bytes;
    struct shared *shared;
};

/* One rank's end: stepaf_boot_t's self. */
struct member {
    struct stepaf_boot_local *local;
    int rank;
    int spin;
    pid_t pid;        /* the process that has taken the rank */
    uint64_t *starts; /* size + 1 offsets, for the exchange in progress */
};

/* ---- boot_local_watch.c ---- */

enum stepaf_local_fate {
    STEPAF_LOCAL_LIVES, /* or cannot be told */
    STEPAF_LOCAL_ENDED,
    STEPAF_LOCAL_LEFT
};

/* Return a number for the PID namespace of this process; 0 if the system does not tell. Numbers of
 * processes and sessions are unique only within one. */
uint64_t stepaf_boot_local_pid_space(void);
/* Make this process the rank from now on: others notice when the process ends. */
void stepaf_boot_local_hold(struct stepaf_boot_local *local, int rank);
/* Mark the rank of this process as left: it will not come any more. */
void stepaf_boot_local_leave(struct stepaf_boot_local *local);
enum stepaf_local_fate stepaf_boot_local_fate(const struct stepaf_boot_local *local, int rank);

/* ---- boot_local.c ---- */

/* Return whether the ranks that the caller of a barrier names exist, in a job of @a size. */
bool stepaf_boot_local_are_ranks(const int *ranks, int n, int size);

/* Return the deadline by which ranks must meet in an exchange that may last until @a deadline_ns:
 * it is within STEPAF_INIT_TIMEOUT_US. */
int64_t stepaf_boot_local_meeting(int64_t deadline_ns);

stepaf_status_t stepaf_boot_local_allgather(void *self, const void *data, size_t bytes,
                                            void **all_p, size_t *offsets_p, int64_t timeout_us);
stepaf_status_t stepaf_boot_local_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                          int64_t timeout_us);

/* ---- boot_local_make.c ---- */

/* Take files that another process has made for @a size ranks, and that are sealed against a change
 * of size. On success the files belong to *local_p; on failure the caller keeps them. */
stepaf_status_t stepaf_boot_local_adopt(int size, const int fds[STEPAF_LOCAL_FILES],
                                        stepaf_boot_local_t **local_p);

#endif
