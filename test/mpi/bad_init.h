/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input to stepaf_init: shared by the files of the test. */
#ifndef STEPAF_TEST_BAD_INIT_H
#define STEPAF_TEST_BAD_INIT_H

#include "harness.h"

/* Bootstraps 0 to 3 are for contexts one at a time, LAST for the one with a missing rank, and
 * the ones in between for as many contexts as a process may have. */
enum {
    CONTEXTS_MAX = 64,
    FIRST_OF_MANY = 4,
    BAD_LAST = HS_MAX_BOOTS - 1,
    BAD_BOOTS = HS_MAX_BOOTS
};

extern char bad_split[64];

stepaf_params_t bad_good_params(void);

/* Check that stepaf_init with bootstrap 0 fails with @a want; STEPAF_INPROGRESS: with any
 * status. */
bool bad_try(struct hs_job *job, const stepaf_params_t *params, stepaf_status_t want,
             const char *what);

/* The same, and check that its sentence, at every rank, contains @a words. */
void bad_try_saying(struct hs_job *job, const stepaf_params_t *params, stepaf_status_t want,
                    const char *words);

/* bad_agree.c */
void bad_agreement(struct hs_job *job);
void bad_maps(struct hs_job *job);
void bad_versions(struct hs_job *job);
void bad_contradictions(struct hs_job *job);
void bad_nodes(struct hs_job *job);

/* bad_boot.c */
bool bad_borrow(struct hs_job *job, stepaf_boot_t *boot_p);
void bad_boots(struct hs_job *job);
void bad_contexts(struct hs_job *job);
void bad_missing(struct hs_job *job);

#endif
