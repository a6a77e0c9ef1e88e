/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors 0, 1 and 2 are the program's, also where it has closed them, as daemons do. Whatever
 * writes to standard output or error then would write into a descriptor of ours that has that
 * number: into tensors, if it is a file of shared memory. So none of ours ever has. */
#ifndef STEPAF_BASE_FD_H
#define STEPAF_BASE_FD_H

#include <stddef.h>

/* Around a call that makes a descriptor: begin, then end with what it has returned, or with -1 for
 * a call into another library. Meanwhile those of the three that are closed stand for nothing. End
 * returns the same, or -1 with errno if it is one of the three nevertheless, for want of
 * descriptors. errno stays as the call has left it. The two may nest. */
void stepaf_fd_begin(void);
int stepaf_fd_end(int fd);

/* open() with them; O_CLOEXEC is added. A file that is made can be read by all. */
int stepaf_fd_open(const char *path, int flags);

/* ftruncate(), without the signal where that is beyond what this process may write. */
int stepaf_fd_resize(int fd, size_t bytes);

#endif
