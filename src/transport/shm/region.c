/* SPDX-License-Identifier: Apache-2.0 */
/* Peers' regions: shared files are mapped, other pages are identified by their address. */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/error.h"
#include "device/device.h"
#include "transport/shm/shm.h"

void stepaf_shm_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack)
{
    (void)transport;
    stepaf_pack_u32(pack, (uint32_t)mem->fd);
    stepaf_pack_u64(pack, (uintptr_t)mem->base);
}

stepaf_status_t stepaf_shm_import_mem(struct stepaf_link *base, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p)
{
    struct stepaf_shm_link *link = (struct stepaf_shm_link *)base;
    char reason[STEPAF_REASON_MAX];
    int fd = (int)stepaf_unpack_u32(unpack);
    uint64_t address = stepaf_unpack_u64(unpack);

    if (unpack->failed)
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "shm: a region's announcement is malformed");
    struct stepaf_shm_rmem *rmem = calloc(1, sizeof(*rmem));
    if (!rmem)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    rmem->base = (struct stepaf_rmem){id, bytes};
    rmem->address = address;
    /* If the kernel must copy, the file is treated like other pages. */
    if (fd >= 0 && !((const struct stepaf_shm *)base->transport)->kernel_copies) {
        rmem->map = stepaf_device_map_peer(link->pid, fd, bytes, reason);
        if (!rmem->map) {
            free(rmem);
            return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT,
                                    "shm: cannot map a peer's region: %s", reason);
        }
    }
    *rmem_p = &rmem->base;
    return STEPAF_OK;
}

void stepaf_shm_release_mem(struct stepaf_link *link, struct stepaf_rmem *base)
{
    struct stepaf_shm_rmem *rmem = (struct stepaf_shm_rmem *)base;

    (void)link;
    if (rmem->map)
        munmap(rmem->map, rmem->base.bytes);
    free(rmem);
}
