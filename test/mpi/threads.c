/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads in one context. --mode multiple: threads of the test's make all progress.
 * --mode progress: the library's own thread does, and calls the handler at FFN ranks.
 * Attention ranks have threads that start and wait by themselves, one thread that starts for
 * another one that waits, and one that looks at counters and traces all the time; FFN ranks serve
 * with two threads, or in the handler. */
#include "fixture.h"

#include <pthread.h>
#include <string.h>

enum { OWN = 3, HANDED = OWN, PLANS = OWN + 1, DEPTH = 3, BYTES = 96, SERVERS = 2 };

static struct hs_job *job_;
static struct fx_plan plans[PLANS];
static int rounds;
static _Atomic long served;
static _Atomic bool done;
static pthread_t main_thread;

/* Requests on their way from the starting thread to the waiting one. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static stepaf_request_h queue[DEPTH];
static int n_put, n_taken, n_through;

static void *exchanger(void *arg)
{
    struct fx_plan *plan = arg;

    for (int i = 0; i < rounds && !hs_failed(); i++)
        fx_exchange(plan);
    return NULL;
}

static void *starter(void *arg)
{
    struct fx_plan *plan = &plans[HANDED];

    (void)arg;
    for (int i = 0; i < rounds && !hs_failed(); i++) {
        stepaf_request_h request = NULL;
        pthread_mutex_lock(&lock);
        while (n_put - n_through == DEPTH)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        HS_OK(fx_start(plan, STEPAF_START_WAIT, &request));
        pthread_mutex_lock(&lock);
        queue[n_put++ % DEPTH] = request;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void *waiter(void *arg)
{
    (void)arg;
    for (int i = 0; i < rounds && !hs_failed(); i++) {
        int index = -1;
        pthread_mutex_lock(&lock);
        while (n_put == n_taken)
            pthread_cond_wait(&changed, &lock);
        stepaf_request_h request = queue[n_taken++ % DEPTH];
        pthread_mutex_unlock(&lock);
        if (i % 2 == 0)
            HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        else
            HS_OK(stepaf_wait_any(&request, 1, STEPAF_TIMEOUT_DEFAULT, &index));
        fx_verify(&plans[HANDED], (uint32_t)i, -1);
        pthread_mutex_lock(&lock);
        n_through++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void *watcher(void *arg)
{
    static stepaf_trace_record_t records[64];
    stepaf_counters_t counters = {.size = sizeof(counters)};
    uint64_t last = 0;
    size_t n;

    (void)arg;
    while (!atomic_load(&done)) {
        HS_OK(stepaf_counters_query(job_->ctx, &counters));
        HS_INT(counters.operations_started + counters.batches_received, >=, last);
        last = counters.operations_started + counters.batches_received;
        HS_OK(stepaf_trace_read(job_->ctx, records, sizeof(*records), 64, &n));
        HS_OK(stepaf_progress(job_->ctx));
        hs_sleep_us(500);
    }
    return NULL;
}

static long batches_in_all(void)
{
    return (long)rounds * PLANS * job_->attn;
}

static void *server(void *arg)
{
    stepaf_batch_h batches[2];
    int n;

    (void)arg;
    while (atomic_load(&served) < batches_in_all() && !hs_failed()) {
        stepaf_status_t status = stepaf_recv(job_->ctx, STEPAF_FROM_ANY, 0, 20000, batches, 2, &n);
        if (status == STEPAF_ERR_TIMEOUT)
            continue;
        if (!HS_OK(status))
            break;
        for (int i = 0; i < n; i++) {
            fx_look(job_, batches[i]);
            HS_OK(fx_answer(job_, batches[i], i == 0 ? STEPAF_RESPOND_RELEASE : 0));
            if (i > 0)
                HS_OK(stepaf_release(batches[i]));
            atomic_fetch_add(&served, 1);
        }
    }
    return NULL;
}

static void handler(stepaf_batch_h batch, void *arg)
{
    static _Atomic int inside;

    (void)arg;
    HS_INT(atomic_fetch_add(&inside, 1), ==, 0); /* never twice at once */
    HS_TRUE(!pthread_equal(pthread_self(), main_thread));
    fx_look(job_, batch);
    HS_OK(fx_answer(job_, batch, STEPAF_RESPOND_RELEASE));
    atomic_fetch_sub(&inside, 1);
    atomic_fetch_add(&served, 1);
}

static void run(void *(*const *work)(void *), int n)
{
    pthread_t threads[8], watching;

    pthread_create(&watching, NULL, watcher, NULL);
    for (int i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, work[i], i < OWN ? &plans[i] : NULL);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&done, true);
    pthread_join(watching, NULL);
}

static void serve(bool by_handler)
{
    static void *(*const servers[SERVERS])(void *) = {server, server};
    int64_t deadline = hs_now_ns() + 60000000000LL * hs_slow();

    if (!by_handler) {
        run(servers, SERVERS);
        HS_INT(atomic_load(&served), ==, batches_in_all());
        return;
    }
    /* This thread sleeps: only the library's can have called the handler. */
    while (atomic_load(&served) < batches_in_all() && !hs_failed() && hs_now_ns() < deadline)
        hs_sleep_us(2000);
    HS_INT(atomic_load(&served), ==, batches_in_all());
    HS_OK(stepaf_batch_set_handler(job_->ctx, NULL, NULL));
}

static void body(struct hs_job *job)
{
    static void *(*const work[OWN + 2])(void *) = {exchanger, exchanger, exchanger, starter,
                                                   waiter};
    bool by_thread = strcmp(hs_option_text(job, "--mode", "multiple"), "progress") == 0;
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_PROGRESS | STEPAF_PARAM_THREADS,
                              .threads = STEPAF_THREADS_MULTIPLE};

    job_ = job;
    rounds = (int)hs_option_int(job, "--rounds", 300);
    main_thread = pthread_self();
    params.progress = by_thread ? STEPAF_PROGRESS_THREAD : STEPAF_PROGRESS_INLINE;
    if (by_thread)
        params.field_mask &= ~(uint64_t)STEPAF_PARAM_THREADS; /* the mode implies it */
    if (!hs_open_with(job, params))
        return;
    for (int id = 0; id < PLANS; id++)
        if (!fx_declare(job, id, BYTES, id == HANDED ? DEPTH : 1))
            return;
    for (int id = 0; id < PLANS && job->role == STEPAF_ATTENTION; id++)
        if (!fx_plan_make(job, id, BYTES, id == HANDED ? DEPTH : 1, FX_BOTH, &plans[id]))
            return;
    if (job->role == STEPAF_FFN && !fx_serve_open(job, BYTES))
        return;
    if (job->role == STEPAF_FFN && by_thread)
        HS_OK(stepaf_batch_set_handler(job->ctx, handler, NULL));
    if (!HS_OK(stepaf_commit(job->ctx)))
        return;
    hs_step("exchange");
    if (job->role == STEPAF_FFN)
        serve(by_thread);
    else
        run(work, OWN + 2);
    hs_sync(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "threads",
                                        .options = "--mode --rounds",
                                        .limit_s = 120,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
