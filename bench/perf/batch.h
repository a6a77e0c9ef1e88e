/* SPDX-License-Identifier: Apache-2.0 */
/* A file of tests, one per line: the options of the command line, except options of the whole
 * run. Words are separated by blanks, without quotes; text after a # is a comment. */
#ifndef PERF_BATCH_H
#define PERF_BATCH_H

#include "options.h"

struct perf_batch {
    int n;
    struct perf_options *tests;
    char *text; /* of the file: options point into it */
};

/* Read @a path; the words of each line follow the command line's words. -1 with a sentence that
 * names the line. */
int perf_batch_read(const char *path, int argc, char **argv, struct perf_batch *batch_p);

void perf_batch_close(struct perf_batch *batch);

#endif
