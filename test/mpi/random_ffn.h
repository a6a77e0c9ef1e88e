/* SPDX-License-Identifier: Apache-2.0 */
/* The random test's FFN side, shared by its files. */
#ifndef STEPAF_TEST_RANDOM_FFN_H
#define STEPAF_TEST_RANDOM_FFN_H

#include "random.h"

enum { MODE_ANY, MODE_EACH, MODE_HANDLER, MODE_END };

/* Ordinal of the next batch of each plan. */
extern _Atomic uint32_t f_next[R_ATTN][R_PLANS];

/* Whether a handler is set. */
extern bool f_handler;

/* ---- random_buffers.c: receive buffers of the caller's own ---- */

bool f_buffers_prepare(struct hs_job *job, const struct r_model *model, int phase);
/* Where tensor @a i must lie; NULL: anywhere. */
unsigned char *f_buffer_place(const struct r_held *held, int i);
void f_buffers_check(void);
void f_buffers_end(void);

#endif
