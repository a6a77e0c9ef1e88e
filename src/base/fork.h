/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that a child of fork() must not keep. As long as one process holds a socket, its peer
 * cannot see that the one that used it has ended, and its port stays taken; close-on-exec is of no use
 * where the child executes nothing. In a child each such number becomes a descriptor of nothing:
 * whatever the child still does with it, the parent's connection is out of its reach.
 *
 * A child that is made without fork()'s handlers, by clone() or _Fork(), keeps them. */
#ifndef STEPAF_BASE_FORK_H
#define STEPAF_BASE_FORK_H

/* Around the call that makes a descriptor, since no fork may come between it and this: begin, then
 * end with what it has returned. End returns the same, or -1 with errno, after a close, if there is
 * no memory. The calling thread must not wait in between. */
void stepaf_fork_begin(void);
int stepaf_fork_end(int fd);

/* Close a descriptor; none of these, or one that has become nothing, is closed as well. */
void stepaf_fork_close(int fd);

#endif
