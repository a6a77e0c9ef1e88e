/* SPDX-License-Identifier: Apache-2.0 */
/* A file of tests, a line each: what the command line would have, but for options of the whole run.
 * Words are parted by blanks, without quotes; what follows a # is a comment. */
#ifndef PERF_BATCH_H
#define PERF_BATCH_H

#include "options.h"

struct perf_batch {
    int n;
    struct perf_options *tests;
    char *text; /* of the file: options point into it */
};

/* Read @a path, whose lines come behind the command line's words. -1 with a sentence that names the
 * line. */
int perf_batch_read(const char *path, int argc, char **argv, struct perf_batch *batch_p);

void perf_batch_close(struct perf_batch *batch);

#endif
