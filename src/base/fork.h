/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that a child of fork() must not keep. As long as one process holds a socket, its peer
 * cannot see that the one that used it has ended, and its port stays taken; close-on-exec is of no
 * use where the child executes nothing. In a child each such number becomes a descriptor of
 * nothing: whatever the child still does with it, the parent's connection is out of its reach.
 *
 * A child that is made without fork()'s handlers, by clone() or _Fork(), keeps them. */
#ifndef STEPAF_BASE_FORK_H
#define STEPAF_BASE_FORK_H

/* Around the call that makes a descriptor, since no fork may come between it and this: begin, then
 * end with what it has returned. End returns the same, or -1 with errno, after a close, if there is
 * no memory. The calling thread must not wait in between. */
void stepaf_fork_begin(void);
int stepaf_fork_end(int fd);

/* For a descriptor that a library makes and closes: add between begin and end, and forget before
 * the library closes it. An errno, if there is no memory: then the child keeps it. */
int stepaf_fork_add(int fd);
void stepaf_fork_forget(int fd);
/* Add, at any time, a descriptor that a library may close without a word: a child gives it up only
 * where the number is still that file's. */
int stepaf_fork_add_file(int fd);

/* A mapping keeps a file as a descriptor does: have children drop theirs of all files whose names
 * begin with
 * @a prefix, which stays the caller's. For one prefix at a time; NULL: none any more. */
void stepaf_fork_unmap(const char *prefix);

/* Close a descriptor; none of these, or one that has become nothing, is closed as well. */
void stepaf_fork_close(int fd);

#endif
