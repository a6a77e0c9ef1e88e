/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors 0, 1 and 2 belong to the program, even if it has closed them, as daemons do.
 * Code that then writes to standard output or error would write into the library's file descriptor
 * with that number: into tensors, if it is a file of shared memory. So no file descriptor of the
 * library has one of these numbers. */
#ifndef STEPAF_BASE_FD_H
#define STEPAF_BASE_FD_H

#include <stddef.h>

/* Enclose a call that makes a file descriptor: begin, then end with the call's result, or with -1
 * for a call into another library. In between, closed file descriptors among the three are occupied
 * by stand-ins. End returns its argument, or -1 with errno if it is one of the three nevertheless,
 * for want of file descriptors. errno stays as the call left it. The two may nest. */
void stepaf_fd_begin(void);
int stepaf_fd_end(int fd);

/* open() enclosed by these; O_CLOEXEC is added. A created file can be read by all. */
int stepaf_fd_open(const char *path, int flags);

/* ftruncate(), without the signal if the size is beyond what this process may write. */
int stepaf_fd_resize(int fd, size_t bytes);

#endif
