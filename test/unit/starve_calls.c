/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that fail, as allocations do in starve.c: for want of descriptors, room or
 * rights. */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "starve.h"

/* What the linker makes of them: see starve.c. WRAP(result on failure, errno, type, name,
 * parameters, arguments) */
#define WRAP(failure_, error_, type_, name_, parameters_, arguments_) \
    type_ __real_##name_ parameters_;                                 \
    type_ __wrap_##name_ parameters_;                                 \
    type_ __wrap_##name_ parameters_                                  \
    {                                                                 \
        if (starve_denies()) {                                        \
            errno = (error_);                                         \
            return failure_;                                          \
        }                                                             \
        return __real_##name_ arguments_;                             \
    }

WRAP(-1, EMFILE, int, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(-1, EMFILE, int, shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode))
WRAP(-1, ENOSPC, int, ftruncate, (int fd, off_t length), (fd, length))
WRAP(MAP_FAILED, ENOMEM, void *, mmap,
     (void *at, size_t bytes, int protection, int flags, int fd, off_t offset),
     (at, bytes, protection, flags, fd, offset))
WRAP(-1, EMFILE, int, socket, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(-1, EADDRINUSE, int, bind, (int fd, const struct sockaddr *name, socklen_t bytes),
     (fd, name, bytes))
WRAP(-1, EADDRINUSE, int, listen, (int fd, int backlog), (fd, backlog))
WRAP(-1, ENETUNREACH, int, connect, (int fd, const struct sockaddr *name, socklen_t bytes),
     (fd, name, bytes))
WRAP(-1, EMFILE, int, accept4, (int fd, struct sockaddr *name, socklen_t *bytes, int flags),
     (fd, name, bytes, flags))
WRAP(-1, ENOBUFS, int, getsockname, (int fd, struct sockaddr *name, socklen_t *bytes),
     (fd, name, bytes))
WRAP(-1, ENOMEM, int, setsockopt,
     (int fd, int level, int option, const void *value, socklen_t bytes),
     (fd, level, option, value, bytes))
WRAP(-1, EMFILE, int, epoll_create1, (int flags), (flags))
WRAP(-1, ENOSPC, int, epoll_ctl, (int fd, int what, int of, struct epoll_event *event),
     (fd, what, of, event))
WRAP(-1, ENOMEM, int, getifaddrs, (struct ifaddrs * *list_p), (list_p))
WRAP(-1, EPERM, ssize_t, process_vm_readv,
     (pid_t pid, const struct iovec *own, unsigned long n_own, const struct iovec *its,
      unsigned long n_its, unsigned long flags),
     (pid, own, n_own, its, n_its, flags))
WRAP(-1, EPERM, ssize_t, process_vm_writev,
     (pid_t pid, const struct iovec *own, unsigned long n_own, const struct iovec *its,
      unsigned long n_its, unsigned long flags),
     (pid, own, n_own, its, n_its, flags))
WRAP(EAGAIN, EAGAIN, int, pthread_create,
     (pthread_t * thread_p, const pthread_attr_t *attributes, void *(*body)(void *), void *arg),
     (thread_p, attributes, body, arg))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list more;

    if (starve_denies()) {
        errno = EMFILE;
        return -1;
    }
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return __real_open(path, flags, mode);
}

int __wrap_fcntl(int fd, int what, ...)
{
    va_list more;

    if (starve_denies()) {
        errno = EMFILE;
        return -1;
    }
    va_start(more, what);
    long arg = va_arg(more, long);
    va_end(more);
    return __real_fcntl(fd, what, arg);
}
