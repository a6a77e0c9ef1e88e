/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that must be dropped: one counter increases, and nothing else changes. */
#ifndef STEPAF_TEST_DROP_H
#define STEPAF_TEST_DROP_H

#include "fake.h"
#include "state.h"
#include "unit.h"

enum drop { DROP_MALFORMED, DROP_STALE, DROP_SILENTLY };

#define EXPECT_WHOLE(job_)                                                          \
    do {                                                                            \
        const char *expect_wrong = state_check((job_)->ctx);                        \
        CU_ASSERT_PTR_NULL(expect_wrong);                                           \
        if (expect_wrong)                                                           \
            fprintf(stderr, "\n    %s:%d: %s\n", __FILE__, __LINE__, expect_wrong); \
    } while (0)

static inline bool is_dropped(struct fake_job *job, uint32_t peer, const struct stepaf_msg *msg,
                              enum drop how)
{
    uint64_t digest = state_digest(job->ctx);
    stepaf_counters_t counters = job->ctx->counters;
    unsigned n_records = job->n_records;

    fake_tell(job, peer, msg);
    counters.dropped_malformed += how == DROP_MALFORMED;
    counters.dropped_stale += how == DROP_STALE;
    return state_digest(job->ctx) == digest && job->n_records == n_records &&
           !memcmp(&counters, &job->ctx->counters, sizeof counters);
}

/* Deliver @a msg_, which must be dropped. */
#define EXPECT_DROP(job_, peer_, msg_, how_)                 \
    do {                                                     \
        CU_ASSERT_TRUE(is_dropped(job_, peer_, msg_, how_)); \
        EXPECT_WHOLE(job_);                                  \
    } while (0)

/* Deliver @a msg_, which must not be dropped. */
#define EXPECT_TAKEN(job_, peer_, msg_)                                                      \
    do {                                                                                     \
        stepaf_counters_t expect_counters = (job_)->ctx->counters;                           \
        fake_tell(job_, peer_, msg_);                                                        \
        CU_ASSERT_EQUAL((job_)->ctx->counters.dropped_malformed,                             \
                        expect_counters.dropped_malformed);                                  \
        CU_ASSERT_EQUAL((job_)->ctx->counters.dropped_stale, expect_counters.dropped_stale); \
        EXPECT_WHOLE(job_);                                                                  \
    } while (0)

#endif
