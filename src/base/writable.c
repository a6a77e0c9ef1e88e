/* SPDX-License-Identifier: Apache-2.0 */
/* Have the kernel write to each page. Of the calls that do, getcpu is the fastest: 145 ns where
 * getsockopt takes 400, readv of /dev/zero 380, madvise(MADV_POPULATE_WRITE) 680 and
 * process_vm_writev 1400 (an EPYC virtual machine). Called with syscall, since the C library's own
 * getcpu and getrandom write without the kernel. A kernel that forbids one of the calls does not
 * return EFAULT, and the page counts as writable. */
#include "base/writable.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

const char stepaf_unwritable_own[] =
    "registered memory of this rank cannot be written: it is unmapped or read-only";
const char stepaf_unwritable_peers[] =
    "its registered memory cannot be written: it is unmapped or read-only";

enum { PAGE = 4096, WRITTEN = sizeof(unsigned) /* by getcpu */, READ = 8 /* by rt_sigprocmask */ };

/* Too few bytes for getcpu: write as many random ones. */
static __attribute__((cold)) bool are_few_writable(uint8_t *at, size_t bytes)
{
    long n = bytes ? syscall(SYS_getrandom, at, bytes, 0x1 /* GRND_NONBLOCK */) : 0;

    return n < 0 ? errno != EFAULT : (size_t)n == bytes;
}

bool stepaf_is_writable(uint8_t *at, size_t bytes)
{
    uint8_t *end = at + bytes;

    if (__builtin_expect(bytes < WRITTEN, 0))
        return are_few_writable(at, bytes);
    while (at < end) {
        uint8_t *to = end - at < WRITTEN ? end - WRITTEN : at;
        if (__builtin_expect(syscall(SYS_getcpu, to, NULL, NULL) && errno == EFAULT, 0))
            return false;
        at = (uint8_t *)(((uintptr_t)at | (PAGE - 1)) + 1);
    }
    return true;
}

/* No change of the signal mask has the number -1: the kernel reads the mask, and refuses. Data that
 * is aligned to its size is in one page. */
bool stepaf_is_readable(const void *at, size_t bytes)
{
    uintptr_t next = (uintptr_t)at & -(uintptr_t)READ, end = (uintptr_t)at + bytes;

    for (; bytes && next < end; next = (next | (PAGE - 1)) + 1)
        if (__builtin_expect(
                syscall(SYS_rt_sigprocmask, -1, next, NULL, (size_t)READ) && errno == EFAULT, 0))
            return false;
    return true;
}
