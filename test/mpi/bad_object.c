/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input: roles, keys, memory, and the calls that report. */
#include "bad_input.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Calls that are not for this role. */
void bad_roles(struct hs_job *job)
{
    static unsigned char memory[BYTES];
    stepaf_tensor_t push = {PUSH, memory, 1};
    stepaf_request_h request = NULL;
    stepaf_batch_h batch = NULL;
    stepaf_plan_h plan = NULL;
    struct bad_state state;
    int n = 0;

    bad_remember(job, &state);
    if (is_ffn(job)) {
        HS_REFUSED(stepaf_plan_create(job->ctx, &push, 1, NULL, 0, 0, &plan), STEPAF_ERR_ROLE);
        HS_REFUSED(stepaf_push_pull(job->ctx, &push, 1, NULL, 0, &request), STEPAF_ERR_ROLE);
        HS_REFUSED(stepaf_barrier(job->ctx, STEPAF_GROUP_ATTENTION, SHORT_US), STEPAF_ERR_ROLE);
    } else {
        HS_REFUSED(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n), STEPAF_ERR_ROLE);
        HS_REFUSED(stepaf_key_set_recv(job->ctx, PUSH, memory, BYTES, NULL, 0), STEPAF_ERR_ROLE);
        HS_REFUSED(stepaf_batch_set_handler(job->ctx, NULL, NULL), STEPAF_ERR_ROLE);
        HS_REFUSED(stepaf_barrier(job->ctx, STEPAF_GROUP_FFN, SHORT_US), STEPAF_ERR_ROLE);
    }
    HS_TRUE(plan == NULL && request == NULL && batch == NULL);
    bad_unchanged(job, &state, "roles");
}

static const stepaf_key_params_t good_key = {.field_mask = STEPAF_KEY_DTYPE | STEPAF_KEY_SHAPE |
                                                           STEPAF_KEY_DEPTH,
                                             .dtype = STEPAF_F32,
                                             .ndim = 2,
                                             .shape = {4, 8},
                                             .depth = 2};

static void refuse_key(struct hs_job *job, stepaf_direction_t direction, size_t max_bytes,
                       const stepaf_key_params_t *params, int line)
{
    if (!HS_REFUSED(stepaf_key_declare(job->ctx, NO_KEY, direction, max_bytes, params),
                    STEPAF_ERR_INVALID))
        HS_FAILED("key of line %d", line);
}

/* A declaration with one field wrong. */
#define REFUSE_KEY(field_, value_)                             \
    do {                                                       \
        stepaf_key_params_t params_ = good_key;                \
        params_.field_ = (value_);                             \
        refuse_key(job, STEPAF_PUSH, 128, &params_, __LINE__); \
    } while (0)

void bad_keys(struct hs_job *job)
{
    stepaf_key_params_t params = good_key;

    REFUSE_KEY(field_mask, good_key.field_mask | 1u << 4);
    REFUSE_KEY(field_mask, good_key.field_mask | 1ull << 63);
    REFUSE_KEY(field_mask, STEPAF_KEY_SHAPE); /* of bytes: 32 */
    REFUSE_KEY(dtype, STEPAF_DTYPE_LAST);
    REFUSE_KEY(dtype, (stepaf_dtype_t)-1);
    REFUSE_KEY(ndim, 0);
    REFUSE_KEY(ndim, -1);
    REFUSE_KEY(ndim, STEPAF_MAX_DIMS + 1);
    REFUSE_KEY(shape[0], -1);
    REFUSE_KEY(shape[1], -8);
    REFUSE_KEY(shape[0], INT64_MAX);
    REFUSE_KEY(shape[0], (int64_t)1 << 62);
    REFUSE_KEY(depth, 0);
    REFUSE_KEY(depth, STEPAF_MAX_DEPTH + 1);
    refuse_key(job, STEPAF_PUSH, 127, &params, __LINE__);
    refuse_key(job, STEPAF_PUSH, (size_t)UINT32_MAX + 1, NULL, __LINE__);
    refuse_key(job, (stepaf_direction_t)2, 128, &params, __LINE__);
    refuse_key(job, (stepaf_direction_t)-1, 128, NULL, __LINE__);
    params.field_mask |= STEPAF_KEY_MEM_KIND;
    params.mem_kind = (stepaf_mem_kind_t)17;
    refuse_key(job, STEPAF_PUSH, 128, &params, __LINE__);
    /* Declared already, with other parameters; the same again is no contradiction. */
    HS_REFUSED(stepaf_key_declare(job->ctx, PUSH, STEPAF_PUSH, BYTES + 1, NULL),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_key_declare(job->ctx, PUSH, STEPAF_PULL, BYTES, NULL), STEPAF_ERR_INVALID);
}

/* What is not there, or not all of it. */
static void register_holes(struct hs_job *job)
{
    enum { PAGES = 5000 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *all = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const size_t holes[] = {0, 1, PAGES / 2, PAGES - 1};

    if (!HS_TRUE(all != MAP_FAILED))
        return;
    HS_OK(stepaf_register(job->ctx, all + 10, PAGES * page - 20));
    HS_OK(stepaf_deregister(job->ctx, all + 10));
    for (int i = 3; i >= 0; i--) {
        munmap(all + holes[i] * page, page);
        HS_REFUSED(stepaf_register(job->ctx, all + 10, PAGES * page - 20), STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_register(job->ctx, all + holes[i] * page + 100, 1), STEPAF_ERR_INVALID);
    }
    HS_OK(stepaf_register(job->ctx, all + 2 * page, 10 * page));
    HS_OK(stepaf_deregister(job->ctx, all + 2 * page));
    munmap(all, PAGES * page);
}

static void bad_registrations(struct hs_job *job)
{
    unsigned char *mine = malloc(4 * BYTES);

    HS_REFUSED(stepaf_register(job->ctx, NULL, BYTES), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_register(job->ctx, mine, 0), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_register(job->ctx, mine, SIZE_MAX), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_register(job->ctx, mine, ((size_t)1 << 40) + 1), STEPAF_ERR_INVALID);
    HS_OK(stepaf_register(job->ctx, mine + BYTES, 2 * BYTES));
    HS_REFUSED(stepaf_register(job->ctx, mine + BYTES, 2 * BYTES), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_register(job->ctx, mine, BYTES + 1), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_register(job->ctx, mine + 3 * BYTES - 1, 1), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_register(job->ctx, mine, 4 * BYTES), STEPAF_ERR_INVALID);
    HS_OK(stepaf_register(job->ctx, mine + 3 * BYTES, BYTES)); /* side by side is no overlap */
    HS_REFUSED(stepaf_free(job->ctx, mine + BYTES), STEPAF_ERR_UNREGISTERED);
    HS_REFUSED(stepaf_deregister(job->ctx, mine), STEPAF_ERR_UNREGISTERED);
    HS_REFUSED(stepaf_deregister(job->ctx, mine + BYTES + 1), STEPAF_ERR_UNREGISTERED);
    HS_OK(stepaf_deregister(job->ctx, mine + BYTES));
    HS_OK(stepaf_deregister(job->ctx, mine + 3 * BYTES));
    register_holes(job);
    HS_REFUSED(stepaf_deregister(job->ctx, mine + BYTES), STEPAF_ERR_UNREGISTERED);
    free(mine);
}

void bad_memory(struct hs_job *job)
{
    unsigned char *ptr = NULL;

    HS_REFUSED(stepaf_alloc(job->ctx, 0, STEPAF_MEM_HOST, (void **)&ptr), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_alloc(job->ctx, ((size_t)1 << 40) + 1, STEPAF_MEM_HOST, (void **)&ptr),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_alloc(job->ctx, SIZE_MAX, STEPAF_MEM_HOST, (void **)&ptr),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_alloc(job->ctx, 1, STEPAF_MEM_HOST, NULL), STEPAF_ERR_INVALID);
    HS_TRUE(stepaf_alloc(job->ctx, 1, (stepaf_mem_kind_t)9, (void **)&ptr) < 0);
    HS_TRUE(ptr == NULL);
    if (HS_OK(stepaf_alloc(job->ctx, 5000, STEPAF_MEM_HOST, (void **)&ptr))) {
        HS_INT((uintptr_t)ptr % 4096, ==, 0);
        for (int i = 0; i < 5000; i++)
            if (!HS_INT(ptr[i], ==, 0))
                break;
        HS_REFUSED(stepaf_register(job->ctx, ptr + 10, 10), STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_free(job->ctx, ptr + 1), STEPAF_ERR_UNREGISTERED);
        HS_REFUSED(stepaf_deregister(job->ctx, ptr), STEPAF_ERR_UNREGISTERED);
        HS_OK(stepaf_free(job->ctx, ptr));
        HS_REFUSED(stepaf_free(job->ctx, ptr), STEPAF_ERR_UNREGISTERED);
    }
    HS_REFUSED(stepaf_free(job->ctx, NULL), STEPAF_ERR_UNREGISTERED);
    if (!is_ffn(job)) { /* in use by a plan, as source and as target */
        HS_REFUSED(stepaf_free(job->ctx, bad_plans[WHOLE].source), STEPAF_ERR_STATE);
        HS_REFUSED(stepaf_free(job->ctx, bad_plans[WHOLE].target), STEPAF_ERR_STATE);
    }
    bad_registrations(job);
}

void bad_reports(struct hs_job *job)
{
    stepaf_trace_record_t record;
    stepaf_group_t none = (stepaf_group_t)3;
    size_t n;

    HS_REFUSED(stepaf_trace_read(job->ctx, NULL, sizeof(stepaf_trace_record_t), 1, &n),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_trace_read(job->ctx, &record, sizeof(record), 1, NULL), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_counters_query(job->ctx, NULL), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_memory_query(job->ctx, NULL), STEPAF_ERR_INVALID);
    HS_TRUE(stepaf_transport_name(job->ctx, -1) == NULL);
    HS_TRUE(stepaf_transport_name(job->ctx, 1 << 20) == NULL);
    HS_INT(stepaf_rank(job->ctx, none), ==, -1);
    HS_INT(stepaf_size(job->ctx, none), ==, -1);
    HS_INT(stepaf_world_rank(job->ctx, none, 0), ==, -1);
    HS_INT(stepaf_world_rank(job->ctx, STEPAF_GROUP_WORLD, job->size), ==, -1);
    HS_INT(stepaf_world_rank(job->ctx, STEPAF_GROUP_WORLD, INT32_MIN), ==, -1);
    HS_REFUSED(stepaf_barrier(job->ctx, none, SHORT_US), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_barrier(job->ctx, (stepaf_group_t)-1, SHORT_US), STEPAF_ERR_INVALID);
    HS_TRUE(strcmp(stepaf_event_name((stepaf_event_t)999), "?") == 0);
    HS_TRUE(strcmp(stepaf_event_name((stepaf_event_t)-1), "?") == 0);
    HS_TRUE(strcmp(stepaf_dtype_name((stepaf_dtype_t)999), "?") == 0);
    HS_INT(stepaf_dtype_bytes((stepaf_dtype_t)-3), ==, 0);
    HS_TRUE(stepaf_status_text((stepaf_status_t)-999) != NULL);
    HS_TRUE(stepaf_status_name((stepaf_status_t)999) != NULL);
    HS_TRUE(stepaf_phase_name((stepaf_phase_t)999) != NULL);
}
