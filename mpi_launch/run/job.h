/* SPDX-License-Identifier: Apache-2.0 */
/* What a host is told by ssh's standard input, where no other user sees it: which ranks it gets,
 * their environment, and what they run. On the way it is the number of its bytes, a line, and then
 * words, each ended by a zero. */
#ifndef RUN_JOB_H
#define RUN_JOB_H

#include <stddef.h>

#include "words.h"

enum { RUN_JOB_BYTES_MAX = 1 << 20 };

struct run_host_job {
    int first; /* rank */
    int ranks;
    int size;               /* of the whole job */
    struct run_words env;   /* NAME=VALUE, the same for all */
    char *directory;        /* to be in, where it is there */
    struct run_words words; /* what each runs */
};

/* The text of it, which is the caller's to free; NULL with a sentence if it is too long. */
char *run_job_format(const struct run_host_job *job, size_t *bytes_p);

/* Read it from a descriptor, and no byte more. -1 with a sentence. */
int run_job_read(int fd, struct run_host_job *job_p);

/* Take it from its words, without the line. -1 with a sentence; *job_p is empty then. */
int run_job_parse(const char *text, size_t bytes, struct run_host_job *job_p);

void run_job_free(struct run_host_job *job);

#endif
