/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes on their way: from this process's memory to a peer's, of hosts and of GPUs. */
#include "softnic.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BOUNCE = 1 << 16 };

enum ibv_wc_status softnic_check(const struct softnic_port *port, uint32_t key, uint64_t at,
                                 uint64_t bytes)
{
    const struct softnic_shared_mr *mr = &port->mrs[key % SOFTNIC_MRS];

    if (!key || atomic_load(&mr->key) != key || at < mr->addr || bytes > mr->bytes ||
        at - mr->addr > mr->bytes - bytes)
        return IBV_WC_REM_ACCESS_ERR;
    return IBV_WC_SUCCESS;
}

/* What is read here may be written again when the peer has answered. That goes by way of another
 * process, of which ThreadSanitizer knows nothing: by the bare system call it does not see the
 * read. */
static ssize_t write_by_kernel(pid_t pid, const struct iovec *local, const struct iovec *remote)
{
#ifdef __SANITIZE_THREAD__
    return syscall(SYS_process_vm_writev, pid, local, 1UL, remote, 1UL, 0UL);
#else
    return process_vm_writev(pid, local, 1, remote, 1, 0);
#endif
}

/* To a peer's host memory. */
static enum ibv_wc_status write_host(uint32_t pid, uint64_t at, const void *from, uint64_t bytes)
{
    struct iovec local = {(void *)(uintptr_t)from, bytes};
    struct iovec remote = {(void *)(uintptr_t)at, bytes}; /* NOLINT(performance-no-int-to-ptr) */

    if (pid == softnic.pid) {
        memcpy(remote.iov_base, from, bytes);
        return IBV_WC_SUCCESS;
    }
    while (local.iov_len) {
        ssize_t n = write_by_kernel((pid_t)pid, &local, &remote);
        if (n <= 0)
            return errno == ESRCH || errno == EFAULT ? IBV_WC_RETRY_EXC_ERR : IBV_WC_GENERAL_ERR;
        local.iov_base = (char *)local.iov_base + n;
        remote.iov_base = (char *)remote.iov_base + n;
        local.iov_len -= (size_t)n;
        remote.iov_len -= (size_t)n;
    }
    return IBV_WC_SUCCESS;
}

/* From this process's GPU memory to a peer's host memory. */
static enum ibv_wc_status read_gpu(uint32_t pid, uint64_t at, uint64_t from, uint64_t bytes)
{
    static uint8_t bounce[BOUNCE];

    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < BOUNCE ? bytes - done : BOUNCE;
        if (!softnic_gpu_copy((uintptr_t)bounce, from + done, n) || !softnic_gpu_sync())
            return IBV_WC_LOC_PROT_ERR;
        enum ibv_wc_status status = write_host(pid, at + done, bounce, n);
        if (status)
            return status;
    }
    return IBV_WC_SUCCESS;
}

enum ibv_wc_status softnic_copy(uint32_t pid, const struct softnic_port *port,
                                const struct softnic_send *send, uint64_t at, uint32_t offset,
                                uint32_t bytes)
{
    const struct softnic_shared_mr *to = &port->mrs[send->rkey % SOFTNIC_MRS];
    const struct softnic_shared_mr *own = &softnic.port->mrs[send->lkey % SOFTNIC_MRS];
    uint64_t src = (send->addr ? send->addr : (uintptr_t)send->data) + offset;

    if (to->on_gpu) {
        uint64_t mapped = softnic_gpu_map(pid, to);
        return mapped && softnic_gpu_copy(mapped + (at + offset - to->addr), src, bytes)
                   ? IBV_WC_SUCCESS
                   : IBV_WC_REM_ACCESS_ERR;
    }
    if (send->addr && own->on_gpu)
        return read_gpu(pid, at + offset, src, bytes);
    return write_host(pid, at + offset, (void *)(uintptr_t)src, bytes); /* NOLINT */
}

/* What is sent, to where a receive says: it is never in GPU memory. */
enum ibv_wc_status softnic_copy_to(uint32_t pid, uint64_t at, const struct softnic_send *send)
{
    uint64_t src = send->addr ? send->addr : (uintptr_t)send->data;

    return write_host(pid, at, (void *)(uintptr_t)src, send->bytes); /* NOLINT */
}
