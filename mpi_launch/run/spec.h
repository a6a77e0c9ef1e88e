/* SPDX-License-Identifier: Apache-2.0 */
/* What stepaf-run says to itself on each rank: "stepaf-run --exec SPEC PROGRAM [ARGUMENT...]".
 * SPEC is a list with commas:
 *   bind=WORD            what the rank is bound to
 *   devices              one GPU for each rank
 *   verbose              tell where the rank is
 *   role=attention|ffn   of the rank
 *   program=ROLE:R:W     R ranks run the next W words. Several, in rank order, one after the other:
 *                        for srun, which has no notion of several programs in one job */
#ifndef RUN_SPEC_H
#define RUN_SPEC_H

#include "options.h"

enum run_role { RUN_ROLE_NONE, RUN_ROLE_ATTENTION, RUN_ROLE_FFN };

/* As STEPAF_ROLE has it. */
const char *run_role_word(enum run_role role);

struct run_spec_program {
    enum run_role role;
    int ranks;
    int words;
};

struct run_spec {
    enum run_bind bind;
    int devices;
    int verbose;
    enum run_role role;
    struct run_spec_program programs[RUN_PROGRAMS_MAX];
    int n_programs;
};

/* Longest SPEC, its end included. */
enum { RUN_SPEC_MAX = 64 + RUN_PROGRAMS_MAX * 48 };

void run_spec_format(const struct run_spec *spec, char *text_p, size_t capacity);

/* Returns -1 with a sentence. */
int run_spec_parse(const char *text, struct run_spec *spec_p);

#endif
