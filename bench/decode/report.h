/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that people read, and the file that programs read. */
#ifndef DECODE_REPORT_H
#define DECODE_REPORT_H

#include <stdio.h>

#include "replicas.h"
#include "summary.h"

/* Who is where, and how ranks reach each other. */
void report_map(FILE *file, const struct summary *summary);

/* What was measured. */
void report_table(FILE *file, const struct options *options, const struct summary *summary);

/* How it compares with the reference. */
void report_verify(FILE *file, const struct verify_result *verify);

/* How long a token took, the slowest one as well. */
void report_steps(FILE *file, const struct summary *summary);

/* Which FFN ranks were lost, came back, and have answered. */
void report_replicas(FILE *file, const struct replicas *replicas);

/* What was printed to standard output, @a file, is the result: -1 if any of it was lost. */
int report_end(FILE *file, struct reason *reason);

/* Whether @a path, which may be NULL, can be written: known before hours of decoding. */
int report_try(const char *path, struct reason *reason);

/* Everything, into @a path. */
int report_json(const char *path, const struct options *options, const struct job *job,
                const struct summary *summary, struct reason *reason);

/* Numbers of the table that the file has too. */
struct report_shares {
    double hidden; /* of round trips: what the attention rank did not wait for */
    double communication_hidden;
    double library_attention; /* time in the library, by time in all */
    double library_ffn;
};
struct report_shares report_shares(const struct summary *summary);

#endif
