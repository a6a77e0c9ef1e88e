/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. */
#ifndef DECODE_OPTIONS_H
#define DECODE_OPTIONS_H

#include <stdint.h>

#include "reason.h"

enum { OPTIONS_MAX_PROMPTS = 4096, OPTIONS_MAX_SEQUENCES = 65536, OPTIONS_MAX_MICROBATCHES = 64 };

/* A prompt as given: its text, or its ids as text. */
struct option_prompt {
    const char *text;
    int is_ids;
};

/* Several FFN ranks for each expert. */
struct option_replicas {
    int n;
    int64_t kill_after; /* batches after which FFN rank 0 is killed; 0: never */
    const char *address_file;
};

struct options {
    const char *model; /* NULL: the one that comes with the program */
    const char *split; /* NULL: as the launcher and the environment define */
    struct option_prompt *prompts;
    int n_prompts;
    int tokens; /* 0: not given */
    int batch;  /* 0: not given */
    int microbatches;
    int chunk;
    int scatter;
    int single;
    int procs; /* 0: by a launcher */
    int ignore_eos;
    int quiet;   /* do not show the text of the first sequence */
    int threads; /* 0: not given */
    int progress;
    const char *verify; /* files, or NULL */
    const char *trace;
    const char *json;
    double temperature;
    uint64_t seed;
    int64_t ffn_delay_us;
    struct option_replicas replicas;
    int64_t timeout_us;      /* limit of any wait for another rank's work */
    int64_t load_timeout_us; /* limit of the wait until all ranks have their weights */
};

/* Parse the command line. On request, print help or the version, and exit; else print nothing.
 * Returns -1 for an invalid command line, with the options that could be read. */
int options_parse(int argc, char **argv, struct options *options_p, struct reason *reason);
void options_free(struct options *options);

#endif
