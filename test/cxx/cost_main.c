/* SPDX-License-Identifier: Apache-2.0 */
/* Run each step in C and in C++, over functions of the library that only note what they were called
 * with; that has to be the same. Prints a line for each step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"

enum { N = 1000 };

static uint64_t seen, calls;

static void note(uint64_t word)
{
    seen = (seen ^ word) * 0x9e3779b97f4a7c15u;
    seen ^= seen >> 29;
}

static void *handle_of(uint64_t kind)
{
    return (void *)(uintptr_t)((kind << 32) + ++calls);
}

stepaf_status_t stepaf_start(stepaf_plan_h plan, stepaf_request_h *request_p)
{
    note((uintptr_t)plan);
    *request_p = handle_of(1);
    return STEPAF_OK;
}

stepaf_status_t stepaf_start_with(stepaf_plan_h plan, const stepaf_start_params_t *params,
                                  stepaf_request_h *request_p)
{
    note((uintptr_t)plan);
    note(params->field_mask + params->flags + (uint64_t)params->timeout_us);
    note((uint64_t)params->n_push + params->push->bytes);
    *request_p = handle_of(1);
    return STEPAF_OK;
}

stepaf_status_t stepaf_wait(stepaf_request_h request, int64_t timeout_us)
{
    note((uintptr_t)request);
    note((uint64_t)timeout_us);
    return STEPAF_OK;
}

stepaf_status_t stepaf_recv(stepaf_context_h ctx, stepaf_from_t from, uint32_t flags,
                            int64_t timeout_us, stepaf_batch_h *batches_p, int capacity, int *n_p)
{
    note((uintptr_t)ctx + (uint64_t)from + flags + (uint64_t)capacity);
    note((uint64_t)timeout_us);
    *batches_p = handle_of(2);
    *n_p = 1;
    return STEPAF_OK;
}

stepaf_status_t stepaf_batch_tensor(stepaf_batch_h batch, int index, stepaf_tensor_info_t *info_p)
{
    note((uintptr_t)batch + (uint64_t)index + info_p->size);
    info_p->data = &seen;
    info_p->bytes = calls;
    return STEPAF_OK;
}

stepaf_status_t stepaf_respond(stepaf_batch_h batch, const stepaf_tensor_t *tensors, int n_tensors,
                               uint32_t flags, stepaf_request_h *request_p)
{
    note((uintptr_t)batch + (uint64_t)n_tensors + flags + (request_p != NULL));
    note(tensors->key + tensors->bytes);
    if (request_p)
        *request_p = handle_of(3);
    return STEPAF_OK;
}

void cost_use(const void *data, size_t bytes)
{
    note((data == &seen) + bytes);
}

/* None of the rest is called. */
void cost_fail(stepaf_status_t status)
{
    fprintf(stderr, "failed: %d\n", status);
    exit(1);
}

#define UNCALLED(declaration_)   \
    declaration_                 \
    {                            \
        fputs(__func__, stderr); \
        abort();                 \
    }
UNCALLED(stepaf_status_t stepaf_cancel(stepaf_request_h request __attribute__((unused))))
UNCALLED(stepaf_status_t stepaf_release(stepaf_batch_h batch __attribute__((unused))))
UNCALLED(stepaf_status_t stepaf_plan_destroy(stepaf_plan_h plan __attribute__((unused))))
UNCALLED(void stepaf_finalize(stepaf_context_h ctx __attribute__((unused))))
UNCALLED(const stepaf_error_t *stepaf_last_error(void))
UNCALLED(const char *stepaf_status_text(stepaf_status_t status __attribute__((unused))))

/* Where callgrind writes what has been counted since the last time. */
__attribute__((noinline)) void counts_end(void)
{
    __asm__ volatile("" ::: "memory");
}

static uint64_t run(void (*step)(stepaf_context_h, stepaf_plan_h, int), const char *name)
{
    seen = calls = 0;
    step((void *)0x40, (void *)0x50, N);
    counts_end();
    printf("%s %d\n", name, N);
    return seen;
}

int main(void)
{
    int failed = 0;

#define COST_RUN(name_)                                                         \
    {                                                                           \
        uint64_t in_c = run(counted_c_##name_, "c " #name_);                    \
        failed |= in_c != run(counted_cxx_##name_, "cxx " #name_);              \
        failed |= in_c != run(counted_try_##name_, "try " #name_);              \
        if (failed)                                                             \
            fprintf(stderr, "%s: the library is called differently\n", #name_); \
    }
    COST_MAP(COST_RUN)
    return failed;
}
