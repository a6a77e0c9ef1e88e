/* SPDX-License-Identifier: Apache-2.0 */
/* The three ways to write into a peer's memory.
 *
 * The copy is the C library's, up to the size from which it bypasses the cache (copy.h). Measured
 * between two processes on a Xeon with AVX-512 (Sapphire Rapids), 64 KiB to 8 MiB: "rep movsb" and
 * 512-bit loops are within 3 % of it; stores that bypass the cache take 2 to 5 times as long,
 * because the receiver then reads from memory what it would have found in the cache. It does pay to
 * take a large source through the cache once for all receivers: three copies of 1.75 to 32 MiB in
 * blocks take 0.65 to 0.75 of the time. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "transport/shm/copy.h"
#include "transport/shm/shm.h"

enum {
    COPY_BLOCK = 64 << 10, /* stays in a core's cache while it goes to several peers */
    PAGES_BLOCK = 16 << 20
};

void stepaf_shm_copy_many(uint8_t *const *dst, unsigned n, const uint8_t *src, size_t bytes,
                          size_t uncached)
{
    for (size_t at = 0; at < bytes; at += COPY_BLOCK) {
        size_t block = bytes - at < COPY_BLOCK ? bytes - at : COPY_BLOCK;
        for (unsigned i = 0; i < n; i++)
            stepaf_shm_copy(dst[i] + at, src + at, block, bytes < uncached ? SIZE_MAX : 0);
    }
}

/* Return whether this process can read its own byte, which it could not write to a peer. */
static bool is_readable(const uint8_t *src)
{
    uint8_t byte;
    struct iovec local = {&byte, 1}, own = {(uint8_t *)(uintptr_t)src, 1};

    return process_vm_readv(getpid(), &local, 1, &own, 1, 0) == 1 || errno != EFAULT;
}

/* Return what has kept this rank from writing @a src to the peer. */
static enum stepaf_shm_written why_not(const struct stepaf_shm_link *link, int error,
                                       const uint8_t *src)
{
    if (error == EFAULT)
        return is_readable(src) ? STEPAF_SHM_NO_PLACE : STEPAF_SHM_NO_SOURCE;
    return stepaf_shm_has_ended(link) ? STEPAF_SHM_GONE : STEPAF_SHM_FORBIDDEN;
}

/* Either the peer sees that this rank is writing, or this rank sees that the peer has closed its
 * pages. Writes in blocks, so that a peer that closes its pages need not wait for long. */
enum stepaf_shm_written stepaf_shm_write_pages(struct stepaf_shm_link *link,
                                               struct stepaf_post *post)
{
    const struct stepaf_xfer *xfer = &post->xfer[post->at];
    const struct stepaf_shm_rmem *rmem = (const struct stepaf_shm_rmem *)xfer->dst;
    const uint8_t *src = xfer->src;
    size_t done = post->at_offset;
    int error = 0;

    atomic_store(&link->tx_words->writing, 1);
    while (!error && done < xfer->bytes) {
        size_t rest = xfer->bytes - done, block = rest < PAGES_BLOCK ? rest : PAGES_BLOCK;
        struct iovec local = {(uint8_t *)(uintptr_t)src + done, block};
        struct iovec remote = {(void *)(uintptr_t)(rmem->address + xfer->dst_offset + done), block};
        link->shut = stepaf_shm_closed_for(link->tx_words, link->own_pid) != STEPAF_SHM_OPEN;
        if (link->shut)
            break;
        ssize_t moved = process_vm_writev(link->pid, &local, 1, &remote, 1, 0);
        if (moved > 0)
            done += (size_t)moved;
        else
            error = moved == 0 ? EFAULT : errno == EINTR ? 0 : errno;
    }
    atomic_store_explicit(&link->tx_words->writing, 0, memory_order_release);
    link->base.bytes_sent += done - post->at_offset;
    post->at_offset = (uint32_t)done;
    return __builtin_expect(error, 0) ? why_not(link, error, src + done) : STEPAF_SHM_WRITTEN;
}

/* Returns false if @a src cannot be read. If the kernel does not permit the call, the library
 * copies after all. */
static bool copy_by_kernel(uint8_t *dst, const uint8_t *src, size_t bytes)
{
    struct iovec local = {dst, bytes}, own = {(uint8_t *)(uintptr_t)src, bytes};
    ssize_t moved = process_vm_readv(getpid(), &local, 1, &own, 1, 0);

    if (moved < 0 && errno != EFAULT)
        memcpy(dst, src, bytes);
    else if (moved != (ssize_t)bytes)
        return false;
    return true;
}

enum stepaf_shm_written stepaf_shm_write_fragments(struct stepaf_shm_link *link,
                                                   struct stepaf_post *post)
{
    const struct stepaf_shm *shm = (const struct stepaf_shm *)link->base.transport;
    const struct stepaf_xfer *xfer = &post->xfer[post->at];

    link->staged = true;
    while (post->at_offset < xfer->bytes) {
        if (!stepaf_shm_slot_free(link))
            return STEPAF_SHM_NO_ROOM;
        uint32_t rest = xfer->bytes - post->at_offset;
        uint32_t bytes = rest < link->fragment_bytes ? rest : link->fragment_bytes;
        uint64_t offset = xfer->dst_offset + post->at_offset;
        uint8_t *room =
            link->tx_staging + (size_t)(link->tx_next & link->mask) * link->fragment_bytes;
        struct stepaf_msg msg = {
            .type = STEPAF_MSG_TRANSPORT,
            .n_words = 4,
            .word = {xfer->dst->id, (uint32_t)offset, (uint32_t)(offset >> 32), bytes},
        };
        const uint8_t *src = (const uint8_t *)xfer->src + post->at_offset;
        if (!shm->kernel_copies)
            memcpy(room, src, bytes);
        else if (!copy_by_kernel(room, src, bytes))
            return STEPAF_SHM_NO_SOURCE;
        stepaf_shm_slot_write(link, &msg);
        link->base.bytes_sent += bytes;
        post->at_offset += bytes;
    }
    return STEPAF_SHM_WRITTEN;
}
