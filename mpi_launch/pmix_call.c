/* SPDX-License-Identifier: Apache-2.0 */
#include "pmix_call.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_NS = 10000000 }; /* between polls for lost ranks */

/* A call that PMIx has accepted: shared by its thread and the caller's until both are done with
 * it. */
struct call {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int left;   /* outstanding callbacks */
    int refs;   /* the callbacks, and the caller */
    int enough; /* the caller has its answer without them */
    pmix_status_t code;
    int failed; /* the rank whose get returned that code first; -1: not about a rank */
    pmix_proc_t *procs;
    pmix_info_t info[2];
    size_t n_info;
    struct stepaf_pmix_value *values; /* of a get, by rank */
    struct asked *asked;
    int n;
};

/* One get of several: the argument of PMIx's callback. */
struct asked {
    struct call *call;
    int rank;
    int is_over;
    signed char answer; /* of a question, as in stepaf_pmix_ask */
};

static void free_call(struct call *call)
{
    for (int i = 0; call->values && i < call->n; i++)
        free(call->values[i].data);
    for (size_t i = 0; i < call->n_info; i++)
        PMIX_INFO_DESTRUCT(&call->info[i]);
    pthread_cond_destroy(&call->done);
    pthread_mutex_destroy(&call->lock);
    free(call->values);
    free(call->asked);
    free(call->procs);
    free(call);
}

/* The server's own deadline is in whole seconds: round up, so that it expires after ours. */
static int server_timeout_s(int64_t deadline_ns)
{
    int64_t left_s = (deadline_ns - stepaf_boot_now_ns()) / 1000000000 + 2;
    return left_s < 2 ? 2 : left_s > 1000000 ? 1000000 : (int)left_s;
}

static struct call *new_call(int n, int64_t deadline_ns, const char *flag)
{
    pthread_condattr_t attributes;
    struct call *call = calloc(1, sizeof *call);
    int timeout_s = server_timeout_s(deadline_ns);
    if (!call)
        return NULL;
    pthread_mutex_init(&call->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&call->done, &attributes);
    pthread_condattr_destroy(&attributes);
    call->refs = 1;
    call->failed = -1;
    call->n = n;
    call->procs = calloc((size_t)n, sizeof *call->procs);
    if (!call->procs) {
        free_call(call);
        return NULL;
    }
    PMIX_INFO_LOAD(&call->info[call->n_info++], PMIX_TIMEOUT, &timeout_s, PMIX_INT);
    if (flag)
        PMIX_INFO_LOAD(&call->info[call->n_info++], flag, NULL, PMIX_BOOL);
    return call;
}

static void drop(struct call *call)
{
    pthread_mutex_lock(&call->lock);
    int refs = --call->refs;
    pthread_mutex_unlock(&call->lock);
    if (refs == 0)
        free_call(call);
}

/* Finish a callback with @a code; @a asked: NULL, or the rank of the get. The last one wakes the
 * caller. */
static void finish(struct call *call, pmix_status_t code, struct asked *asked)
{
    pthread_mutex_lock(&call->lock);
    if (code != PMIX_SUCCESS && call->code == PMIX_SUCCESS) {
        call->code = code;
        call->failed = asked ? asked->rank : -1;
    }
    if (asked)
        asked->is_over = 1;
    if (--call->left == 0)
        pthread_cond_signal(&call->done);
    pthread_mutex_unlock(&call->lock);
    drop(call);
}

/* PMIx has rejected a get: it will not call back. */
static void refused(struct call *call, pmix_status_t code, struct asked *asked)
{
    finish(call, code == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : code, asked);
}

static void expect(struct call *call, int callbacks)
{
    call->left = callbacks;
    call->refs += callbacks;
}

int stepaf_pmix_first_lost(const struct stepaf_pmix_session *session, const int *ranks, int n)
{
    if (atomic_load_explicit(&session->n_lost, memory_order_acquire) == 0)
        return -1;
    for (int i = 0; i < n; i++) {
        int rank = ranks ? ranks[i] : i;
        if (atomic_load(&session->is_lost[rank]))
            return rank;
    }
    return -1;
}

stepaf_status_t stepaf_pmix_lost(int rank, const char *what)
{
    return stepaf_boot_fail(STEPAF_ERR_PEER_LOST,
                            "PMIx bootstrap: %s: the launcher reports that rank %d died", what,
                            rank);
}

/* The first rank whose get is not complete; -1: there is no get. */
static int first_pending(const struct call *call)
{
    for (int i = 0; call->values && i < call->n; i++)
        if (call->asked[i].call && !call->asked[i].is_over)
            return call->asked[i].rank;
    return -1;
}

/* Wait for the callbacks. @a n ranks may be reported lost meanwhile. */
static stepaf_status_t await(struct call *call, const struct stepaf_pmix_session *session,
                             const int *ranks, int n, int64_t deadline_ns, const char *what)
{
    int dead = -1;
    int64_t now_ns = stepaf_boot_now_ns();

    pthread_mutex_lock(&call->lock);
    while (call->left > 0 && !call->enough && dead < 0 && now_ns < deadline_ns) {
        pthread_mutex_unlock(&call->lock); /* PMIx's thread needs it meanwhile */
        int64_t pause_ns = stepaf_boot_pause_ns(LOOK_NS);
        pthread_mutex_lock(&call->lock);
        if (pause_ns < 0)
            break;
        if (call->left == 0 || call->enough)
            continue;
        now_ns = stepaf_boot_now_ns();
        int64_t until_ns = deadline_ns - now_ns > pause_ns ? now_ns + pause_ns : deadline_ns;
        struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
        pthread_cond_timedwait(&call->done, &call->lock, &until);
        dead = stepaf_pmix_first_lost(session, ranks, n);
        now_ns = stepaf_boot_now_ns();
    }
    int left = call->enough ? 0 : call->left;
    pmix_status_t code = call->code;
    int rank = left > 0 ? first_pending(call) : call->failed;
    pthread_mutex_unlock(&call->lock);

    /* A server may end a fence that a member has not joined, since it never will. */
    if (dead < 0)
        dead = stepaf_pmix_first_lost(session, ranks, n);
    if (dead >= 0)
        return stepaf_pmix_lost(dead, what);
    if (left > 0 && rank < 0)
        return stepaf_boot_fail(STEPAF_ERR_TIMEOUT,
                                "PMIx bootstrap: %s: some rank did not arrive in time", what);
    if (left == 0 && code == PMIX_SUCCESS)
        return STEPAF_OK;
    if (rank < 0)
        return stepaf_pmix_error(code, what);
    char of_rank[128];
    snprintf(of_rank, sizeof of_rank, "%s, of rank %d", what, rank);
    return left > 0
               ? stepaf_boot_fail(STEPAF_ERR_TIMEOUT,
                                  "PMIx bootstrap: %s: the server did not answer in time", of_rank)
               : stepaf_pmix_error(code, of_rank);
}

/* Fences that PMIx has not ended: for the server an abandoned fence still exists, and the next
 * one would be taken for the same. */
static _Atomic int fences;

static void on_fence(pmix_status_t code, void *arg)
{
    finish(arg, code, NULL);
    atomic_fetch_sub(&fences, 1);
}

/* Become the only fence, as soon as an earlier one is over. */
static int enter_fence(int64_t deadline_ns)
{
    int none = 0;
    while (!atomic_compare_exchange_strong(&fences, &none, 1)) {
        int64_t pause_ns = stepaf_boot_pause_ns(LOOK_NS / 10);
        if (pause_ns < 0 || stepaf_boot_now_ns() >= deadline_ns)
            return 0;
        nanosleep(&(struct timespec){0, pause_ns}, NULL);
        none = 0;
    }
    return 1;
}

stepaf_status_t stepaf_pmix_fence(const struct stepaf_pmix_session *session, int64_t deadline_ns,
                                  const char *what)
{
    struct call *call = new_call(1, deadline_ns, PMIX_COLLECT_DATA);
    if (!call)
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "PMIx bootstrap: no memory for a fence");
    if (!enter_fence(deadline_ns)) {
        drop(call);
        return stepaf_boot_fail(STEPAF_ERR_TIMEOUT,
                                "PMIx bootstrap: %s: some rank did not arrive at an earlier one",
                                what);
    }
    PMIX_LOAD_PROCID(&call->procs[0], session->self.nspace, PMIX_RANK_WILDCARD);
    expect(call, 1);
    pmix_status_t code = PMIx_Fence_nb(call->procs, 1, call->info, call->n_info, on_fence, call);
    if (code != PMIX_SUCCESS) {
        refused(call, code, NULL);
        atomic_fetch_sub(&fences, 1);
    }
    stepaf_status_t status = await(call, session, NULL, session->size, deadline_ns, what);
    drop(call);
    return status;
}

static void on_value(pmix_status_t code, pmix_value_t *value, void *arg)
{
    struct asked *asked = arg;
    struct call *call = asked->call;
    struct stepaf_pmix_value *into = &call->values[asked->rank];

    if (code == PMIX_SUCCESS && (!value || value->type != PMIX_BYTE_OBJECT))
        code = PMIX_ERR_TYPE_MISMATCH;
    if (code == PMIX_SUCCESS) {
        size_t bytes = value->data.bo.size;
        into->data = malloc(bytes + 1);
        if (into->data && bytes > 0)
            memcpy(into->data, value->data.bo.bytes, bytes);
        into->bytes = bytes;
        code = into->data ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
    }
    finish(call, code, asked);
}

static int count_wanted(const unsigned char *wanted, int n)
{
    int count = 0;
    for (int rank = 0; rank < n; rank++)
        count += !wanted || wanted[rank];
    return count;
}

stepaf_status_t stepaf_pmix_get(const struct stepaf_pmix_session *session, const char *key,
                                const unsigned char *wanted, struct stepaf_pmix_value *values_p,
                                int64_t deadline_ns)
{
    /* All data is at the server since the fence: it need not ask another server. */
    struct call *call = new_call(session->size, deadline_ns, PMIX_IMMEDIATE);
    if (call) {
        call->values = calloc((size_t)call->n, sizeof *call->values);
        call->asked = calloc((size_t)call->n, sizeof *call->asked);
    }
    if (!call || !call->values || !call->asked) {
        if (call)
            drop(call);
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "PMIx bootstrap: no memory for %d ranks",
                                session->size);
    }
    expect(call, count_wanted(wanted, call->n));
    for (int rank = 0; rank < call->n; rank++) {
        if (wanted && !wanted[rank])
            continue;
        call->asked[rank] = (struct asked){.call = call, .rank = rank, .answer = -1};
        PMIX_LOAD_PROCID(&call->procs[rank], session->self.nspace, (pmix_rank_t)rank);
        pmix_status_t code = PMIx_Get_nb(&call->procs[rank], key, call->info, call->n_info,
                                         on_value, &call->asked[rank]);
        if (code != PMIX_SUCCESS)
            refused(call, code, &call->asked[rank]);
    }
    stepaf_status_t status =
        await(call, session, NULL, 0, deadline_ns, "fetching what the ranks have put");
    for (int rank = 0; status == STEPAF_OK && rank < call->n; rank++) {
        values_p[rank] = call->values[rank];
        call->values[rank].data = NULL;
    }
    drop(call);
    return status;
}

/* That the rank has not put the key is an answer, not a failure. */
static void on_answer(pmix_status_t code, pmix_value_t *value, void *arg)
{
    struct asked *asked = arg;
    struct call *call = asked->call;

    (void)value;
    pthread_mutex_lock(&call->lock);
    if (code == PMIX_SUCCESS)
        asked->answer = 1;
    else if (code == PMIX_ERR_NOT_FOUND)
        asked->answer = 0;
    if (asked->answer == 0) {
        call->enough = 1;
        pthread_cond_signal(&call->done);
    }
    pthread_mutex_unlock(&call->lock);
    finish(call, code == PMIX_ERR_NOT_FOUND ? PMIX_SUCCESS : code, asked);
}

/* Flags that keep the server from answering from data fetched earlier. A server of version 5
 * gives no answer to a question with PMIX_GET_REFRESH_CACHE (5.0.7). The server has all data of
 * its own ranks, and is told not to wait until they put more; of others it has the data that the
 * last fence brought, and asks their server unless told not to. */
static const char *fresh_flag(const struct stepaf_pmix_session *session, int rank)
{
    const char *version = PMIx_Get_version(), *number = version + strcspn(version, "0123456789");

    if (strtol(number, NULL, 10) < 5)
        return PMIX_GET_REFRESH_CACHE;
    return !session->is_near || session->is_near[rank] ? PMIX_IMMEDIATE : NULL;
}

static void ask(struct call *call, const struct stepaf_pmix_session *session, const char *key,
                struct asked *asked, pmix_proc_t *proc)
{
    const char *flag = fresh_flag(session, asked->rank);
    pmix_info_t *info = call->info;

    /* Before PMIx's thread can have the answer. */
    asked->answer = flag && !strcmp(flag, PMIX_IMMEDIATE) ? -1 : -2;
    PMIX_LOAD_PROCID(proc, session->self.nspace, (pmix_rank_t)asked->rank);
    if (call->n_info == 1 && flag)
        PMIX_INFO_LOAD(&info[call->n_info++], flag, NULL, PMIX_BOOL);
    pmix_status_t code = PMIx_Get_nb(proc, key, info, flag ? 2 : 1, on_answer, asked);
    if (code != PMIX_SUCCESS)
        on_answer(code == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : code, NULL, asked);
}

stepaf_status_t stepaf_pmix_ask(const struct stepaf_pmix_session *session, const char *key,
                                int first, int n, int64_t deadline_ns, const char *what,
                                signed char *answers_p)
{
    struct call *call = new_call(n, deadline_ns, NULL);
    if (call)
        call->asked = calloc((size_t)n, sizeof *call->asked);
    if (!call || !call->asked) {
        if (call)
            drop(call);
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "PMIx bootstrap: no memory for a question");
    }
    expect(call, n);
    for (int i = 0; i < n; i++)
        call->asked[i] = (struct asked){.call = call, .rank = first + i, .answer = -1};
    for (int i = 0; i < n; i++) {
        if (first + i == (int)session->self.rank)
            on_answer(PMIX_SUCCESS, NULL, &call->asked[i]); /* a caller has put its own */
        else
            ask(call, session, key, &call->asked[i], &call->procs[i]);
    }
    stepaf_status_t status = n == 1 ? await(call, session, &first, 1, deadline_ns, what)
                                    : await(call, session, NULL, session->size, deadline_ns, what);
    pthread_mutex_lock(&call->lock);
    for (int i = 0; i < n; i++)
        answers_p[i] = call->asked[i].answer;
    pthread_mutex_unlock(&call->lock);
    drop(call);
    return status;
}
