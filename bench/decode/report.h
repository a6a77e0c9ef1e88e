/* SPDX-License-Identifier: Apache-2.0 */
/* The program's output: tables for people, and a JSON file for programs. */
#ifndef DECODE_REPORT_H
#define DECODE_REPORT_H

#include <stdio.h>

#include "replicas.h"
#include "summary.h"

/* Show where each rank is, and how ranks reach each other. */
void report_map(FILE *file, const struct summary *summary);

/* Show the measurements. */
void report_table(FILE *file, const struct options *options, const struct summary *summary);

/* Show the comparison with the reference. */
void report_verify(FILE *file, const struct verify_result *verify);

/* Show how long a token took, including the slowest one. */
void report_steps(FILE *file, const struct summary *summary);

/* Show which FFN ranks were lost, returned, and have answered. */
void report_replicas(FILE *file, const struct replicas *replicas);

/* Check that standard output, @a file, was written completely: -1 if any of it was lost. */
int report_end(FILE *file, struct reason *reason);

/* Check that @a path, which may be NULL, can be written: before hours of decoding. */
int report_try(const char *path, struct reason *reason);

/* Write everything into @a path. */
int report_json(const char *path, const struct options *options, const struct job *job,
                const struct summary *summary, struct reason *reason);

/* Numbers of the table that the JSON file also has. */
struct report_shares {
    double hidden; /* share of round trips: the part for which the attention rank did not wait */
    double communication_hidden;
    double library_attention; /* time in the library, divided by the total time */
    double library_ffn;
};
struct report_shares report_shares(const struct summary *summary);

#endif
