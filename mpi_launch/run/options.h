/* SPDX-License-Identifier: Apache-2.0 */
/* The parsed command line. */
#ifndef RUN_OPTIONS_H
#define RUN_OPTIONS_H

#include "words.h"

enum { RUN_RANKS_MAX = 1 << 20, RUN_PROGRAMS_MAX = 16, RUN_TIMEOUT_MAX_S = 30 * 86400 };

/* What a rank is bound to. */
enum run_bind { RUN_BIND_AUTO, RUN_BIND_CORE, RUN_BIND_NUMA, RUN_BIND_GPU, RUN_BIND_NONE };

/* Convert to a word, and back: -1 if @a word is not one. */
const char *run_bind_word(enum run_bind bind);
int run_bind_parse(const char *word, enum run_bind *bind_p);

/* A program and the number of ranks that run it. A single program has both counts; of several,
 * each has one. */
struct run_program {
    int attention;
    int ffn;
    char **words; /* pointing into the command line */
    int n_words;
};

struct run_options {
    struct run_program programs[RUN_PROGRAMS_MAX];
    int n_programs;
    int interleave;
    int per_node;         /* counts are per node */
    int nodes;            /* 0: not given */
    const char *hosts;    /* NULL: not given */
    const char *hostfile; /* NULL: not given */
    const char *launcher; /* a word or a path; NULL: detect */
    int slurm;
    enum run_bind bind;
    int device_per_rank;
    struct run_words env;  /* NAME or NAME=VALUE */
    struct run_words pass; /* words for the launcher */
    int oversubscribe, allow_root, dry_run, verbose;
    int timeout_s; /* 0: none */
};

/* Parse the command line, which *options_p points into afterwards. On failure, print a message
 * on standard error and exit with RUN_EXIT_USAGE; for --help and the like exit with 0. */
void run_options_parse(int argc, char **argv, struct run_options *options_p);

void run_options_free(struct run_options *options);

#endif
