/* SPDX-License-Identifier: Apache-2.0 */
/* The same loops in C and in C++, over a library that is made up: see test/lib/cxx_cost.sh. */
#ifndef TEST_CXX_COST_H
#define TEST_CXX_COST_H

#include <stepaf/stepaf.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { COST_DEPTH = 4 };

/** Every step that is compared: name. counted_c_NAME and counted_cxx_NAME run it @a n times; where
 * the
 *  C++ has a twin without exceptions, counted_try_NAME too. */
#define COST_MAP(_)                                                                      \
    _(start_wait)      /* an attention rank's operation */                               \
    _(start_with)      /* the same, with sources of its own */                           \
    _(microbatches)    /* COST_DEPTH operations in flight, their requests in an array */ \
    _(owned)           /* the same; in C++ the requests own their operations */          \
    _(recv_respond)    /* an FFN rank's batch: recv, tensor, respond */                  \
    _(respond_request) /* the same, with a wait for the sources */

#define COST_DECLARE(name_)                                                    \
    void counted_c_##name_(stepaf_context_h ctx, stepaf_plan_h plan, int n);   \
    void counted_cxx_##name_(stepaf_context_h ctx, stepaf_plan_h plan, int n); \
    void counted_try_##name_(stepaf_context_h ctx, stepaf_plan_h plan, int n);
COST_MAP(COST_DECLARE)
#undef COST_DECLARE

/** Use tensor @a data, as a caller would. */
void cost_use(const void *data, size_t bytes);

/** End the process: a call has failed. */
__attribute__((noreturn, cold)) void cost_fail(stepaf_status_t status);

#ifdef __cplusplus
}
#endif
#endif
