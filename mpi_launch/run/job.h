/* SPDX-License-Identifier: Apache-2.0 */
/* The message that a host receives on ssh's standard input, where no other user sees it: the
 * host's ranks, their environment, and the program. Format: a line with the number of bytes,
 * then words, each terminated by a zero byte.
 *
 * From then on, each byte is a beat: the number of seconds for which the sender may now be silent,
 * 0 for ever. A host that hears nothing for longer ends its ranks. Before the first beat there is
 * no limit: the sender may be of a version that sends none. */
#ifndef RUN_JOB_H
#define RUN_JOB_H

#include <stddef.h>

#include "words.h"

enum {
    RUN_JOB_BYTES_MAX = 1 << 20,
    RUN_BEAT_MS = 5000,
    RUN_SILENCE_S = 30,
    RUN_CODE_SILENT = 122 /* exit code of a host that has heard nothing for that long */
};

struct run_host_job {
    int first; /* first rank */
    int ranks;
    int size;               /* of the whole job */
    struct run_words env;   /* NAME=VALUE, the same for all */
    char *directory;        /* working directory, if it exists there */
    struct run_words words; /* the command of each rank */
};

/* Return the text of a job, which the caller frees; NULL with a sentence if it is too long. */
char *run_job_format(const struct run_host_job *job, size_t *bytes_p);

/* Read a job from a file descriptor, and no byte beyond it. Returns -1 with a sentence. */
int run_job_read(int fd, struct run_host_job *job_p);

/* Parse a job from its words, without the line. Returns -1 with a sentence; *job_p is empty
 * then. */
int run_job_parse(const char *text, size_t bytes, struct run_host_job *job_p);

void run_job_free(struct run_host_job *job);

#endif
