/* SPDX-License-Identifier: Apache-2.0 */
/* Every function that takes a handle, so that one of unknown worth can be tried on it. The other
 * arguments are good, and nothing happens should the call get through. */
#include "bad_input.h"

static unsigned char memory[64];
static const stepaf_tensor_t tensor = {PUSH, memory, 1};
static int one_rank;

/* Each call of a kind with a handle of unknown worth. */
static stepaf_status_t c_commit(void *h)
{
    return stepaf_commit(h);
}
static stepaf_status_t c_barrier(void *h)
{
    return stepaf_barrier(h, STEPAF_GROUP_WORLD, 0);
}
static stepaf_status_t c_progress(void *h)
{
    return stepaf_progress(h);
}
static stepaf_status_t c_declare(void *h)
{
    return stepaf_key_declare(h, NO_KEY, STEPAF_PUSH, 0, NULL);
}
static stepaf_status_t c_withdraw(void *h)
{
    return stepaf_key_withdraw(h, PUSH);
}
static stepaf_status_t c_register_recv(void *h)
{
    return stepaf_key_set_recv(h, PUSH, memory, 64, &one_rank, 1);
}
static stepaf_status_t c_alloc(void *h)
{
    void *ptr;
    return stepaf_alloc(h, 1, STEPAF_MEM_HOST, &ptr);
}
static stepaf_status_t c_free(void *h)
{
    return stepaf_free(h, memory);
}
static stepaf_status_t c_register(void *h)
{
    return stepaf_register(h, memory, 64);
}
static stepaf_status_t c_deregister(void *h)
{
    return stepaf_deregister(h, memory);
}
static stepaf_status_t c_plan(void *h)
{
    stepaf_plan_h plan;
    return stepaf_plan_create(h, &tensor, 1, NULL, 0, 0, &plan);
}
static stepaf_status_t c_push_pull(void *h)
{
    stepaf_request_h request;
    return stepaf_push_pull(h, &tensor, 1, NULL, 0, &request);
}
static stepaf_status_t c_recv(void *h)
{
    stepaf_batch_h batch;
    int n;
    return stepaf_recv(h, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n);
}
static stepaf_status_t c_handler(void *h)
{
    return stepaf_batch_set_handler(h, NULL, NULL);
}
static stepaf_status_t c_trace_read(void *h)
{
    stepaf_trace_record_t record;
    size_t n;
    return stepaf_trace_read(h, &record, sizeof(record), 1, &n);
}
static stepaf_status_t c_trace_clear(void *h)
{
    return stepaf_trace_clear(h);
}
static stepaf_status_t c_counters(void *h)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};
    return stepaf_counters_query(h, &counters);
}
static stepaf_status_t c_memory(void *h)
{
    stepaf_memory_use_t use = {.size = sizeof(use)};
    return stepaf_memory_query(h, &use);
}
static stepaf_status_t c_finalize(void *h) /* ignores what is no context */
{
    stepaf_finalize(h);
    return stepaf_progress(h);
}

static stepaf_status_t p_destroy(void *h)
{
    return stepaf_plan_destroy(h);
}
static stepaf_status_t p_start(void *h)
{
    stepaf_request_h request;
    return stepaf_start(h, &request);
}
static stepaf_status_t p_set_answers(void *h)
{
    return stepaf_plan_set_answers(h, 1, 0);
}
static stepaf_status_t p_start_with(void *h)
{
    stepaf_start_params_t params = {0};
    stepaf_request_h request;
    return stepaf_start_with(h, &params, &request);
}

static stepaf_status_t r_wait(void *h)
{
    return stepaf_wait(h, 0);
}
static stepaf_status_t r_test(void *h)
{
    return stepaf_test(h);
}
static stepaf_status_t r_cancel(void *h)
{
    return stepaf_cancel(h);
}
static stepaf_status_t r_sent(void *h)
{
    return stepaf_request_sent(h);
}
static stepaf_status_t r_tensor(void *h)
{
    return stepaf_request_tensor(h, 0, NULL);
}
static stepaf_status_t r_peer(void *h)
{
    return stepaf_request_peer(h, 0);
}
static stepaf_status_t r_answers(void *h)
{
    uint64_t mask;
    return stepaf_request_answers(h, &mask, 1);
}
static stepaf_status_t r_wait_peer(void *h)
{
    return stepaf_wait_peer(h, 0, 0);
}
static stepaf_status_t r_wait_tensor(void *h)
{
    return stepaf_wait_tensor(h, 0, 0);
}
static stepaf_status_t r_wait_rest(void *h)
{
    return stepaf_wait_rest(h, 0);
}
static stepaf_status_t r_timeline(void *h)
{
    stepaf_timeline_t line = {.size = sizeof(line)};
    return stepaf_timeline_query(h, 0, &line);
}
static stepaf_status_t r_wait_any(void *h)
{
    stepaf_request_h requests[2] = {NULL, h};
    int index;
    /* NULL alone leaves nothing to wait for, which is no error of the handle. */
    return h == NULL ? stepaf_wait(h, 0) : stepaf_wait_any(requests, 2, 0, &index);
}

static stepaf_status_t b_get(void *h)
{
    stepaf_batch_info_t info = {.size = sizeof(info)};
    return stepaf_batch_query(h, &info);
}
static stepaf_status_t b_tensor(void *h)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    return stepaf_batch_tensor(h, 0, &info);
}
static stepaf_status_t b_pull(void *h)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    return stepaf_batch_answer(h, 0, &info);
}
static stepaf_status_t b_respond(void *h)
{
    return stepaf_respond(h, &tensor, 1, 0, NULL);
}
static stepaf_status_t b_many(void *h)
{
    stepaf_batch_h batch = h;
    return stepaf_respond_many(&batch, 1, &tensor, 1, NULL, 0, NULL);
}
static stepaf_status_t b_release(void *h)
{
    return stepaf_release(h);
}

const struct bad_call bad_calls[] = {
    {CONTEXT, "commit", c_commit},
    {CONTEXT, "barrier", c_barrier},
    {CONTEXT, "progress", c_progress},
    {CONTEXT, "key_declare", c_declare},
    {CONTEXT, "key_withdraw", c_withdraw},
    {CONTEXT, "register_recv", c_register_recv},
    {CONTEXT, "alloc", c_alloc},
    {CONTEXT, "free", c_free},
    {CONTEXT, "register", c_register},
    {CONTEXT, "deregister", c_deregister},
    {CONTEXT, "plan_create", c_plan},
    {CONTEXT, "push_pull", c_push_pull},
    {CONTEXT, "recv", c_recv},
    {CONTEXT, "set_handler", c_handler},
    {CONTEXT, "trace_read", c_trace_read},
    {CONTEXT, "trace_clear", c_trace_clear},
    {CONTEXT, "counters_get", c_counters},
    {CONTEXT, "memory_get", c_memory},
    {CONTEXT, "finalize", c_finalize},
    {PLAN, "plan_destroy", p_destroy},
    {PLAN, "start", p_start},
    {PLAN, "start_with", p_start_with},
    {PLAN, "plan_set_answers", p_set_answers},
    {REQUEST, "wait", r_wait},
    {REQUEST, "test", r_test},
    {REQUEST, "cancel", r_cancel},
    {REQUEST, "request_sent", r_sent},
    {REQUEST, "request_tensor", r_tensor},
    {REQUEST, "request_peer", r_peer},
    {REQUEST, "request_answers", r_answers},
    {REQUEST, "wait_peer", r_wait_peer},
    {REQUEST, "wait_tensor", r_wait_tensor},
    {REQUEST, "wait_rest", r_wait_rest},
    {REQUEST, "request_timeline", r_timeline},
    {REQUEST, "wait_any", r_wait_any},
    {BATCH, "batch_get", b_get},
    {BATCH, "batch_tensor", b_tensor},
    {BATCH, "batch_pull", b_pull},
    {BATCH, "respond", b_respond},
    {BATCH, "respond_many", b_many},
    {BATCH, "release", b_release},
    {CONTEXT, NULL, NULL},
};
