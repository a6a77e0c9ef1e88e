/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a rank's process is still there. Each process holds a lock on a byte of the file that all
 * have mapped. The kernel releases the lock with the process, whatever ends it, in any PID
 * namespace. Such locks belong to a process: a child that it has forked does not hold them. Two
 * ranks in one process could not be told apart, so these are not watched. */
#include "boot/boot_local.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t stepaf_boot_local_pid_space(void)
{
    struct stat space;

    return stat("/proc/self/ns/pid", &space) == 0 ? (uint64_t)space.st_ino : 0;
}

/* Return what identifies this process: its number and the PID namespace of that number. */
static uint64_t own_name(void)
{
    return stepaf_boot_local_pid_space() << 32 | (uint32_t)getpid();
}

static struct flock lock_of(int rank)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

void stepaf_boot_local_hold(struct stepaf_boot_local *local, int rank)
{
    struct slot *slots = local->shared->slots;
    struct flock lock = lock_of(rank);
    uint64_t own = own_name();
    uint32_t before = atomic_load(&slots[rank].presence);

    if (before == SLOT_UNWATCHED ||
        (before == SLOT_HELD && atomic_load(&slots[rank].holder) == own))
        return;
    /* Another process, which has forked this one, has the lock: either may be the rank. */
    bool is_shared = fcntl(local->fds[STEPAF_LOCAL_MAP], F_SETLK, &lock) != 0;
    atomic_store(&slots[rank].holder, own);
    for (int r = 0; r < local->size; r++)
        if (r != rank && atomic_load(&slots[r].holder) == own) {
            atomic_store(&slots[r].presence, SLOT_UNWATCHED);
            is_shared = true;
        }
    if (is_shared)
        atomic_store(&slots[rank].presence, SLOT_UNWATCHED);
    else
        (void)atomic_compare_exchange_strong(&slots[rank].presence, &before, SLOT_HELD);
}

void stepaf_boot_local_leave(struct stepaf_boot_local *local)
{
    struct slot *slots = local->shared->slots;
    uint64_t own = own_name();

    for (int r = 0; r < local->size; r++) {
        uint32_t held = SLOT_HELD;
        if (atomic_load(&slots[r].holder) == own)
            (void)atomic_compare_exchange_strong(&slots[r].presence, &held, SLOT_LEFT);
    }
}

enum stepaf_local_fate stepaf_boot_local_fate(const struct stepaf_boot_local *local, int rank)
{
    const struct slot *slot = &local->shared->slots[rank];
    struct flock lock = lock_of(rank);

    if (atomic_load(&slot->presence) == SLOT_HELD &&
        (fcntl(local->fds[STEPAF_LOCAL_MAP], F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK))
        return STEPAF_LOCAL_LIVES;
    /* The rank may have left in good order between the two checks. */
    switch (atomic_load(&slot->presence)) {
    case SLOT_HELD:
        return STEPAF_LOCAL_ENDED;
    case SLOT_LEFT:
        return STEPAF_LOCAL_LEFT;
    default:
        return STEPAF_LOCAL_LIVES;
    }
}
