/* SPDX-License-Identifier: Apache-2.0 */
/* The hot path test's two ranks: operations of all kinds, several in flight. */
#include "fixture.h"
#include "hotpath.h"

enum { BYTES = 200, DEPTH = 3, PLANS = 5, ONE_SHOT = 5, PLAIN = 6, END = 7, IDS = 8 };

static struct hs_job job;
static struct fx_plan plans[IDS];
static stepaf_request_h flying[IDS][DEPTH];
static int64_t started_ns[IDS][DEPTH];

static bool open_job(stepaf_boot_local_t *local, int rank)
{
    stepaf_boot_t boot;

    if (!HS_OK(stepaf_boot_local_attach(local, rank, -1, &boot)) ||
        !HS_OK(stepaf_init(&boot, NULL, &job.ctx)))
        return false;
    job.rank = rank;
    job.size = 2;
    job.attn = job.ffn = job.peers = 1;
    job.role = stepaf_role(job.ctx);
    for (int id = 0; id < IDS; id++)
        if (!fx_declare(&job, id, BYTES, DEPTH))
            return false;
    if (job.role == STEPAF_FFN)
        return fx_serve_open(&job, BYTES) && HS_OK(stepaf_commit(job.ctx));
    static const unsigned kinds[IDS] = {
        FX_BOTH, FX_NO_PULL, FX_NO_PUSH, FX_SCATTER, FX_SCATTER | FX_NO_PULL,
        FX_BOTH, FX_BOTH,    FX_NO_PULL};
    for (int id = 0; id < IDS; id++)
        if (!fx_plan_make(&job, id, BYTES, DEPTH, kinds[id], &plans[id]))
            return false;
    return HS_OK(stepaf_commit(job.ctx));
}

/* Wait for what is in this slot, in one of several ways. */
static bool finish(int id, unsigned slot, long n)
{
    stepaf_request_h request = flying[id][slot];
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_timeline_t timeline = {.size = sizeof(timeline)};
    stepaf_status_t status;
    int index = -1;

    if (request == NULL)
        return true;
    flying[id][slot] = NULL;
    if (n % 3 == 0) {
        if (!HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)))
            return false;
    } else if (n % 3 == 1) {
        if (!HS_OK(stepaf_wait_any(&request, 1, STEPAF_TIMEOUT_DEFAULT, &index)))
            return false;
    } else {
        while ((status = stepaf_test(request)) == STEPAF_INPROGRESS)
            ;
        if (!HS_OK(status))
            return false;
    }
    if (!HS_OK(stepaf_request_peer(request, 0)) || !HS_OK(stepaf_request_sent(request)) ||
        !HS_OK(stepaf_timeline_query(request, 0, &timeline)))
        return false;
    if (!(plans[id].kind & FX_NO_PULL) && !HS_OK(stepaf_request_tensor(request, 0, &info)))
        return false;
    return id >= PLANS || fx_verify(&plans[id], plans[id].next - DEPTH, -1);
}

static stepaf_status_t start(int id, stepaf_request_h *request_p)
{
    struct fx_plan *plan = &plans[id];
    stepaf_tensor_t push = {(uint64_t)(FX_PUSH_KEY + id), plan->source, BYTES};
    stepaf_tensor_t pull = {(uint64_t)(FX_PULL_KEY + id), plan->target, BYTES};

    if (id < PLANS || id == END)
        return fx_start(plan, STEPAF_START_WAIT, request_p);
    stepaf_status_t status = id == PLAIN ? stepaf_start(plan->handle, request_p)
                                         : stepaf_push_pull(job.ctx, &push, 1, &pull, 1, request_p);
    if (status == STEPAF_OK)
        plan->next++;
    return status;
}

static void attention(void)
{
    int64_t deadline = hs_now_ns() + HOT_LIMIT_S * 1000000000LL;
    stepaf_status_t status;
    long n = 0;

    for (; n < HOT_WARM_UP + HOT_OPERATIONS; n++) {
        int id = (int)(n % (IDS - 1));
        unsigned slot = plans[id].next % DEPTH;
        if (n == HOT_WARM_UP)
            hot_count_begin();
        int64_t now = hs_now_ns();
        atomic_store(&hot_page->began[0], n < IDS * DEPTH ? now : started_ns[id][slot]);
        if (now > deadline || !finish(id, slot, n))
            break;
        started_ns[id][slot] = hs_now_ns();
        atomic_store(&hot_page->began[0], started_ns[id][slot]);
        while ((status = start(id, &flying[id][slot])) == STEPAF_ERR_WOULD_BLOCK)
            stepaf_progress(job.ctx);
        if (!HS_OK(status))
            break;
    }
    if (n >= HOT_WARM_UP)
        hot_count_end(&hot_page->counts[0]);
    hot_page->counts[0].operations = n - HOT_WARM_UP;
    for (int id = 0; id < IDS - 1; id++)
        for (unsigned slot = 0; slot < DEPTH; slot++)
            if (flying[id][slot] != NULL)
                HS_OK(stepaf_wait(flying[id][slot], STEPAF_TIMEOUT_DEFAULT));
    if (HS_OK(start(END, &flying[END][0])))
        HS_OK(stepaf_wait(flying[END][0], STEPAF_TIMEOUT_DEFAULT));
}

/* Answer in one of several ways. True for the last batch. */
static bool serve(stepaf_batch_h batch, long n)
{
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};

    if (!HS_OK(stepaf_batch_query(batch, &info)))
        return true;
    if (info.n_tensors > 0 && !HS_OK(stepaf_batch_tensor(batch, 0, &tensor)))
        return true;
    int id = info.n_tensors > 0 ? (int)tensor.key - FX_PUSH_KEY : 0;
    if (id < PLANS && !fx_look(&job, batch))
        return true;
    if (info.n_answers == 0 && n % 2 == 0)
        HS_OK(stepaf_release(batch));
    else if (n % 4 == 1 && HS_OK(fx_answer(&job, batch, 0)))
        HS_OK(stepaf_release(batch));
    else if (n % 4 != 1)
        HS_OK(fx_answer(&job, batch, STEPAF_RESPOND_RELEASE));
    return id == END || hs_failed();
}

static void ffn(void)
{
    stepaf_batch_h batches[4];
    int got;
    long n = 0;

    for (bool last = false; !last;) {
        atomic_store(&hot_page->began[1], hs_now_ns());
        if (!HS_OK(stepaf_recv(job.ctx, n % 16 == 0 ? STEPAF_FROM_EACH : STEPAF_FROM_ANY, 0,
                               STEPAF_TIMEOUT_DEFAULT, batches, 4, &got)))
            break;
        for (int i = 0; i < got; i++) {
            last = serve(batches[i], n) || last;
            if (++n == HOT_WARM_UP)
                hot_count_begin();
        }
    }
    if (n >= HOT_WARM_UP)
        hot_count_end(&hot_page->counts[1]);
    hot_page->counts[1].operations = n - HOT_WARM_UP;
}

void hot_rank(stepaf_boot_local_t *local, int rank)
{
    if (open_job(local, rank)) {
        if (job.role == STEPAF_ATTENTION)
            attention();
        else
            ffn();
    }
    stepaf_finalize(job.ctx);
}
