/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are complete with some of their answers, and what becomes of the others. --case
 * NAME says which; --ops N is late's and random's, --seed N random's. */
#include "answers.h"

#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct fx_plan *plan);
} cases[] = {
    {"late", ans_late},       {"few", ans_few},         {"patience", ans_patience},
    {"dropped", ans_dropped}, {"refused", ans_refused}, {"parts", ans_parts},
    {"stopped", ans_stopped}, {"killed", ans_killed},
};

void ans_hold(struct hs_job *job, int ffn, int64_t until_ns)
{
    atomic_store(&job->shared->stamp[A_HOLD + ffn], until_ns);
}

void ans_drop(struct hs_job *job, int ffn)
{
    atomic_store(&job->shared->stamp[A_DROP + ffn], 1);
}

void ans_end(struct hs_job *job, int64_t how)
{
    for (int f = 0; f < A_FFN; f++)
        ans_hold(job, f, 0);
    atomic_store(&job->shared->stamp[A_END], how);
}

unsigned ans_mask(const struct fx_plan *plan, stepaf_request_h request, uint32_t sequence)
{
    uint64_t words[2] = {0, HS_POISON};

    HS_OK(stepaf_request_answers(request, words, 2));
    HS_INT(words[1], ==, 0);
    for (int f = 0; f < A_FFN; f++)
        if (words[0] >> f & 1)
            fx_verify(plan, sequence, f);
    return (unsigned)words[0];
}

bool ans_becomes(const struct fx_plan *plan, stepaf_request_h request, unsigned mask)
{
    int64_t deadline = hs_now_ns() + 20000000000LL * hs_slow();
    unsigned is;

    while ((is = ans_mask(plan, request, plan->next - 1)) != mask && hs_now_ns() < deadline &&
           !hs_failed())
        hs_yield();
    return HS_INT(is, ==, mask);
}

stepaf_counters_t ans_counters(struct hs_job *job)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};

    HS_OK(stepaf_counters_query(job->ctx, &counters));
    return counters;
}

/* What an FFN rank has received and not answered. */
struct kept {
    stepaf_batch_h batches[FX_DEPTH];
    int n;
};

static void answer_first(struct hs_job *job, struct kept *kept, bool apart)
{
    stepaf_batch_h batch = kept->batches[0];

    bool drops = atomic_exchange(&job->shared->stamp[A_DROP + job->index], 0) != 0;
    stepaf_status_t status =
        drops ? STEPAF_ERR_CANCELED : fx_answer(job, batch, apart ? 0 : STEPAF_RESPOND_RELEASE);

    if (status != STEPAF_ERR_CANCELED)
        HS_OK(status);
    if (apart || status == STEPAF_ERR_CANCELED)
        HS_OK(stepaf_release(batch));
    kept->n--;
    memmove(kept->batches, kept->batches + 1, (size_t)kept->n * sizeof(kept->batches[0]));
}

void ans_serve(struct hs_job *job, uint64_t seed)
{
    struct kept kept = {.n = 0};
    int64_t until_ns = 0;

    seed = seed ? hs_mix(seed + (uint64_t)job->index) : 0;
    while (!hs_failed() && !hs_hopeless(job)) {
        stepaf_batch_h batch = NULL;
        int n = 0;
        int64_t end = atomic_load(&job->shared->stamp[A_END]);
        bool holds = hs_now_ns() < atomic_load(&job->shared->stamp[A_HOLD + job->index]);
        if (seed)
            holds = (holds || hs_now_ns() < until_ns) && !end;
        if (kept.n > 0 && !holds)
            answer_first(job, &kept, seed >> 8 & 1);
        stepaf_status_t status =
            stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, kept.n > 0 ? 0 : 500, &batch, 1, &n);
        if (status == STEPAF_OK && fx_look(job, batch) && HS_INT(kept.n, <, FX_DEPTH)) {
            kept.batches[kept.n++] = batch;
            seed = seed ? hs_mix(seed) : 0;
            if (seed % 16 < (unsigned)job->index)
                until_ns = hs_now_ns() + (int64_t)(seed >> 16 & 0xffff) * 8;
        } else if (status != STEPAF_ERR_TIMEOUT) {
            HS_OK(status);
        } else if (end == A_OVER && kept.n == 0) {
            break;
        } else if (holds) {
            hs_yield();
        }
    }
    HS_INT(ans_counters(job).dropped_malformed, ==, 0); /* no START was taken for a wrong one */
}

static void attend(struct hs_job *job, struct fx_plan *plan)
{
    const char *name = hs_option_text(job, "--case", "");

    if (strcmp(name, "random") == 0) {
        ans_random(plan, (uint64_t)hs_option_int(job, "--seed", 1),
                   hs_option_int(job, "--ops", 4000));
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].name, name) == 0) {
            cases[i].run(plan);
            return;
        }
    HS_FAILED("no case \"%s\"", name);
}

static void body(struct hs_job *job)
{
    const char *name = hs_option_text(job, "--case", "");
    bool is_random = strcmp(name, "random") == 0;
    struct fx_plan plan;

    hs_step(name);
    if (!hs_open(job))
        return;
    if (job->attn != 1 || job->ffn != A_FFN) {
        hs_skip("made for one attention rank and %d FFN ranks", A_FFN);
        return;
    }
    if (strcmp(name, "killed") == 0)
        hs_doom(job, stepaf_world_rank(job->ctx, STEPAF_GROUP_FFN, A_FFN - 1));
    if (!fx_open(job, 1, A_BYTES, is_random ? FX_DEPTH : A_DEPTH, FX_BOTH, &plan))
        return;
    if (job->role == STEPAF_FFN) {
        ans_serve(job, is_random ? (uint64_t)hs_option_int(job, "--seed", 1) : 0);
    } else {
        attend(job, &plan);
        ans_end(job, A_OVER);
    }
    hs_sync(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "answers",
                                        .options = "--case --ops --seed",
                                        .limit_s = 60,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
