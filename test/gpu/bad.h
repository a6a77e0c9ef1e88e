/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input: shared by the files of the test. */
#ifndef STEPAF_TEST_GPU_BAD_H
#define STEPAF_TEST_GPU_BAD_H

#include "gpu/exchange.h"

/* The stream plan that everything is tried on; it must go on working. */
extern struct gx_plan bad_plan;

/* A few operations, looked at. */
bool bad_good(struct hs_job *job);

void bad_uncommitted(struct hs_job *job); /* bad_calls.c */
void bad_handles(void);
void bad_roles(struct hs_job *job);
void bad_sizes(struct hs_job *job);
void bad_order(struct hs_job *job);
void bad_captures(struct hs_job *job);
void bad_streams(struct hs_job *job);
void bad_looks(struct hs_job *job);
void bad_plans(struct hs_job *job); /* bad_match.c */
void bad_kinds(struct hs_job *job);
void bad_host_plan(struct hs_job *job);
void bad_matches(struct hs_job *job);

#endif
