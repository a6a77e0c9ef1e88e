/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks with a stream plan each, on a GPU that is made up; one of them commits, and is looked
 * at. */
#ifndef STEPAF_TEST_STREAM_JOB_H
#define STEPAF_TEST_STREAM_JOB_H

#include "cpu_device/cpu_device.h"
#include "fake.h"
#include "gpu/stream.h"

enum {
    STREAM_PUSH = 2000000, /* bytes of key 1 */
    STREAM_MORE = 5008,    /* of key 3, if two are pushed */
    STREAM_PULL = 300000,  /* of key 2 */
    STREAM_DEPTH = 2,
    STREAM_HALF = 3 /* operations up to the second launch: capturing?, gate, unpack */
};

struct stream_job {
    struct fake_job *job, *other; /* the other only tells what it has */
    stepaf_plan_h plan;           /* of the former */
    int n_push;                   /* set before begin: 1 or 2 */
    unsigned depth;               /* the same; else STREAM_DEPTH */
    uint32_t flags;               /* the same: of the former's plans, beside STEPAF_PLAN_STREAM */
    int stream;                   /* its address names one */
};
extern struct stream_job stream_job;

/* A rank of @a role and its only peer; not committed. */
void stream_job_begin(stepaf_role_t role);
stepaf_status_t stream_job_commit(void);
/* All has been given back then. */
void stream_job_end(void);

/* What its plan enqueues. */
stepaf_status_t stream_job_start(const stepaf_start_params_t *params, stepaf_request_h *request_p);
stepaf_status_t stream_job_wait(void);
stepaf_status_t stream_job_recv(void);
stepaf_status_t stream_job_respond(void);

/* Declare a key at both, and make another plan of the same keys at @a its. */
void stream_job_key(uint64_t id, stepaf_direction_t direction, size_t bytes);
stepaf_plan_h stream_job_make(struct fake_job *its);
/* Of the first plan. */
struct stepaf_stream *stream_job_stream(void);

#endif
