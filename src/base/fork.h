/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors that a child of fork() must not keep. As long as one process holds a socket, its
 * peer cannot see that the process that used it has ended, and its port stays in use. Close-on-exec
 * does not help if the child executes nothing. In a child each such number becomes a descriptor of
 * nothing: whatever the child does with it cannot reach the parent's connection.
 *
 * A child that is made without fork()'s handlers, by clone() or _Fork(), keeps them. */
#ifndef STEPAF_BASE_FORK_H
#define STEPAF_BASE_FORK_H

#include <stdint.h>

/* Enclose the call that makes a file descriptor, since no fork may come between the two: begin,
 * then end with the call's result. End returns its argument, or -1 with errno, after closing it, if
 * there is no memory. The calling thread must not wait in between. */
void stepaf_fork_begin(void);
int stepaf_fork_end(int fd);

/* For a file descriptor that another library makes and closes: add it between begin and end, and
 * forget it before that library closes it. Returns an errno if there is no memory: then a child
 * keeps it. */
int stepaf_fork_add(int fd);
void stepaf_fork_forget(int fd);
/* Add, at any time, a file descriptor that another library may close without notice. A child gives
 * it up only if the number still belongs to the same file. */
int stepaf_fork_add_file(int fd);
/* Undo that for the file with this inode. The number may belong to another one by now, which may
 * have been added as well. */
void stepaf_fork_forget_file(int fd, uint64_t inode);

/* A mapping keeps a file open as a file descriptor does. Have children unmap all files whose names
 * begin with @a prefix, which the caller keeps. One prefix at a time; NULL: no prefix any more. */
void stepaf_fork_unmap(const char *prefix);

/* Close a file descriptor. Also closes one that is not registered here, or that has become
 * nothing. */
void stepaf_fork_close(int fd);

#endif
