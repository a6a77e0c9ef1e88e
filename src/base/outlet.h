/* SPDX-License-Identifier: Apache-2.0 */
/* Writes that do not wait, to standard output and error. Others share these descriptions, so
 * O_NONBLOCK is not to be set on them; and poll() alone does not do: a terminal is ready with less
 * room than a line needs, and another process may fill a pipe in between. */
#ifndef STEPAF_BASE_OUTLET_H
#define STEPAF_BASE_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
    STEPAF_OUTLET_BYTES = 4096 /* a pipe takes as many in one piece, or none of them: PIPE_BUF */
};

struct stepaf_outlet {
    int fd;      /* the program's */
    int own;     /* the same terminal or pipe, opened once more; -1: there is no such */
    size_t most; /* bytes of one write */
    bool is_tty; /* own: a terminal, which may accept a part of what is written */
};

/* Keep it open for a moment only, or as long as the process itself lives: a pipe's reader waits for
 * the last who has the pipe open, and a program may put something else at @a fd. errno stays as it
 * is. */
void stepaf_outlet_open(struct stepaf_outlet *outlet_p, int fd);
void stepaf_outlet_close(struct stepaf_outlet *outlet);

/* Keep other processes' lines out of this one's at a terminal, until close. Return false if another
 * process writes there now. */
bool stepaf_outlet_lock(const struct stepaf_outlet *outlet);

/* As write(): -1 with EAGAIN where it would wait. */
ssize_t stepaf_outlet_put(const struct stepaf_outlet *outlet, const void *data, size_t bytes);

#endif
