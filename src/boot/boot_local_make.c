/* SPDX-License-Identifier: Apache-2.0 */
/* Making and freeing the local bootstrap. What its ranks share is in files without names, so that
 * nothing can be left behind. Forked ranks inherit the files; other ranks receive them
 * (boot_join.c). A child may keep the files: it may be the rank, and the locks that show a rank's
 * end are not the child's. */
#define _GNU_SOURCE 1 /* memfd_create */

#include "boot/boot_local.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/why.h"

static size_t bytes_to_map(int size)
{
    return sizeof(struct shared) + (size_t)size * sizeof(struct slot);
}

/* Make the file to map, with its full size. The size is sealed for ever: access to a mapping beyond
 * the end of its file would kill the process. */
static int make_map(size_t bytes)
{
    stepaf_fd_begin();
    int fd = stepaf_fd_end(memfd_create("stepaf-meet", MFD_CLOEXEC | MFD_ALLOW_SEALING));

    if (fd >= 0 && (stepaf_fd_resize(fd, bytes) != 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Map the file, which has the right size; the files belong to the new object. Returns NULL with
 * errno. */
static struct stepaf_boot_local *assemble(int size, const int fds[STEPAF_LOCAL_FILES])
{
    struct stepaf_boot_local *local = malloc(sizeof *local);

    if (!local)
        return NULL;
    local->size = size;
    local->map_bytes = bytes_to_map(size);
    local->shared =
        mmap(NULL, local->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[STEPAF_LOCAL_MAP], 0);
    if (local->shared == MAP_FAILED) {
        free(local);
        return NULL;
    }
    memcpy(local->fds, fds, sizeof local->fds);
    return local;
}

stepaf_status_t stepaf_boot_local_create(int size, stepaf_boot_local_t **local_p)
{
    if (size < 1 || size > STEPAF_MEETING_MAX || !local_p)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_INIT,
                                "local bootstrap: size %d is not 1 to %d, or local_p is NULL", size,
                                STEPAF_MEETING_MAX);
    int fds[STEPAF_LOCAL_FILES] = {-1, -1};
    struct stepaf_boot_local *local = NULL;

    fds[STEPAF_LOCAL_MAP] = make_map(bytes_to_map(size));
    if (fds[STEPAF_LOCAL_MAP] >= 0) {
        stepaf_fd_begin();
        fds[STEPAF_LOCAL_EXCHANGE] = stepaf_fd_end(memfd_create("stepaf-boot", MFD_CLOEXEC));
    }
    if (fds[STEPAF_LOCAL_EXCHANGE] >= 0)
        local = assemble(size, fds);
    if (local) {
        *local_p = local;
        return STEPAF_OK;
    }
    int why = errno;
    for (int i = 0; i < STEPAF_LOCAL_FILES; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT,
                            "local bootstrap: no memory for %d ranks: %s", size, stepaf_why(why));
}

stepaf_status_t stepaf_boot_local_adopt(int size, const int fds[STEPAF_LOCAL_FILES],
                                        stepaf_boot_local_t **local_p)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    int seals = fcntl(fds[STEPAF_LOCAL_MAP], F_GET_SEALS);
    struct stat about;

    if (fds[STEPAF_LOCAL_EXCHANGE] < 0 || seals < 0 || (seals & wanted) != wanted ||
        fstat(fds[STEPAF_LOCAL_MAP], &about) != 0 || about.st_size != (off_t)bytes_to_map(size))
        return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                "local bootstrap: the shared files of rank 0 are not for %d ranks",
                                size);
    struct stepaf_boot_local *local = assemble(size, fds);
    if (!local)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT,
                                "local bootstrap: no memory for %d ranks: %s", size,
                                stepaf_why(errno));
    *local_p = local;
    return STEPAF_OK;
}

/* With more ranks than cores, a spinning rank occupies the core of the rank that it waits for. */
static int cores_suffice(int size)
{
    cpu_set_t cpus;
    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) >= size;
}

static void local_close(void *self)
{
    struct member *member = self;
    free(member->starts);
    free(member);
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
    *member = (struct member){.local = local,
                              .rank = rank,
                              .spin = cores_suffice(local->size),
                              .pid = getpid(),
                              .starts = starts};
    stepaf_boot_local_hold(local, rank);
    *boot_p = (stepaf_boot_t){
        .name = "local",
        .self = member,
        .rank = rank,
        .size = local->size,
        .app_number = app_number < 0 ? -1 : app_number,
        .allgather = stepaf_boot_local_allgather,
        .barrier = stepaf_boot_local_barrier,
        .close = local_close,
    };
    return STEPAF_OK;
}

void stepaf_boot_local_destroy(stepaf_boot_local_t *local)
{
    if (!local)
        return;
    stepaf_boot_local_leave(local);
    for (int i = 0; i < STEPAF_LOCAL_FILES; i++)
        close(local->fds[i]);
    munmap(local->shared, local->map_bytes);
    free(local);
}
