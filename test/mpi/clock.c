/* SPDX-License-Identifier: Apache-2.0 */
/* The common clock while a job runs. All ranks of a test are on one machine, though they may be
 * told that they are not, or be in network namespaces: so CLOCK_MONOTONIC is what it is to be, and
 * shows the error of each rank. An FFN rank answers with its own, and the attention rank compares
 * the two, and what its stamps are off, with the bound that stepaf_link_query says. Beside that it
 * says what operations took there and back at least within a minute: half of what these differ by
 * is what nobody can know who measures by messages alone.
 *
 * --seconds N      how long
 * --limit-ns N     the error is at most that, in any case
 * --settle-ms N    in the first of so many only the bound counts */
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

enum { PUSH_KEY = 1, PULL_KEY = 2, TRIES = 20, PAUSE_EVERY = 64, READING_NS = 300 };

/* What the clock of this rank is off, and give or take what: of the narrowest of some readings. */
struct error {
    int64_t ns;
    int64_t half_ns;
    int64_t came_ns, left_ns; /* FFN: when it had received the batch, and answered */
};

/* The shortest ways within a minute. */
struct ways {
    int64_t until_ns;
    int64_t there_ns, back_ns;
    int64_t uneven_ns; /* half the difference, at most, of minutes before */
};

struct worst {
    int64_t apart_ns; /* of the two ranks */
    int64_t stamp_ns; /* of a stamp of this rank, from its own clock */
    int64_t bound_ns; /* the widest */
    int64_t over_ns;  /* the most that an error was above the bound */
    long n;
    int64_t began_ns;
    double apart_after_s; /* when they were the furthest apart */
    struct ways ways;
};

static struct error read_error(stepaf_context_h ctx)
{
    struct error best = {0, INT64_MAX, 0, 0};

    for (int i = 0; i < TRIES; i++) {
        int64_t before = hs_now_ns();
        int64_t ns = stepaf_clock_ns(ctx);
        int64_t after = hs_now_ns();
        if ((after - before + 1) / 2 < best.half_ns)
            best =
                (struct error){ns - before - (after - before) / 2, (after - before + 1) / 2, 0, 0};
    }
    return best;
}

static int64_t most(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

/* How far @a ns lies outside of what it was somewhere between. */
static int64_t outside(int64_t ns, int64_t from, int64_t to)
{
    return ns < from ? from - ns : ns > to ? ns - to : 0;
}

/* @a memory: for one answer to each attention rank. */
static void serve(struct hs_job *job, struct error *memory)
{
    for (int left = job->attn; left > 0 && !hs_hopeless(job);) {
        stepaf_batch_h batch;
        stepaf_batch_info_t batch_info = {.size = sizeof(batch_info)};
        stepaf_tensor_info_t info = {.size = sizeof(info)};
        int n;
        if (!HS_OK(
                stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n)) ||
            !HS_OK(stepaf_batch_query(batch, &batch_info)) ||
            !HS_OK(stepaf_batch_tensor(batch, 0, &info)))
            return;
        int64_t came_ns = hs_now_ns();
        left -= *(const int64_t *)info.data == 0; /* its last one */
        struct error *error = &memory[batch_info.attention_rank];
        *error = read_error(job->ctx);
        error->came_ns = came_ns;
        error->left_ns = hs_now_ns();
        stepaf_tensor_t answer = {.key = PULL_KEY, .data = error, .bytes = sizeof(*error)};
        if (!HS_OK(stepaf_respond(batch, &answer, 1, STEPAF_RESPOND_RELEASE, NULL)))
            return;
    }
}

/* Bounds are not known for a moment after a commit: peers tell each other. */
static bool await_bounds(struct hs_job *job)
{
    int64_t until = hs_now_ns() + (int64_t)5000000000 * hs_slow();

    for (int p = 0; p < job->peers;) {
        stepaf_link_info_t link = {.size = sizeof(link)};
        if (!HS_OK(stepaf_progress(job->ctx)) ||
            !HS_OK(stepaf_link_query(job->ctx, stepaf_peer_rank(job->ctx, p), &link)) ||
            !HS_INT(hs_now_ns(), <, until))
            return false;
        p += link.clock_bound_ns >= 0;
        hs_yield();
    }
    return true;
}

static void end_minute(struct ways *ways, int64_t now)
{
    int64_t uneven = llabs(ways->there_ns - ways->back_ns) / 2;

    if (ways->until_ns && uneven > ways->uneven_ns)
        ways->uneven_ns = uneven;
    ways->until_ns = now + 60000000000;
    ways->there_ns = ways->back_ns = INT64_MAX;
}

static void note_ways(struct ways *ways, const struct error *answer, int64_t began, int64_t now)
{
    if (now >= ways->until_ns)
        end_minute(ways, now);
    if (answer->came_ns - began < ways->there_ns)
        ways->there_ns = answer->came_ns - began;
    if (now - answer->left_ns < ways->back_ns)
        ways->back_ns = now - answer->left_ns;
}

/* One operation; its answers are the others' errors. */
static bool compare(struct hs_job *job, stepaf_plan_h plan, const struct error *answers,
                    struct worst *worsts, bool settled)
{
    stepaf_request_h request;
    int64_t began = hs_now_ns();
    int64_t before = stepaf_clock_ns(job->ctx);

    if (!HS_OK(stepaf_start(plan, &request)))
        return false;
    int64_t after = stepaf_clock_ns(job->ctx);
    if (!HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)))
        return false;
    int64_t ended = hs_now_ns();
    struct error own = read_error(job->ctx);
    for (int p = 0; p < job->peers; p++) {
        struct worst *worst = &worsts[p];
        note_ways(&worst->ways, &answers[p], began, ended);
        int rank = stepaf_peer_rank(job->ctx, p);
        stepaf_timeline_t timeline = {.size = sizeof(timeline)};
        stepaf_link_info_t link = {.size = sizeof(link)};
        if (!HS_OK(stepaf_timeline_query(request, rank, &timeline)) ||
            !HS_OK(stepaf_link_query(job->ctx, rank, &link)) || !HS_INT(link.clock_bound_ns, >=, 0))
            return false;
        int64_t noise = own.half_ns + answers[p].half_ns + READING_NS;
        int64_t apart = most(llabs(own.ns - answers[p].ns) - noise, 0);
        int64_t stamp = most(outside(timeline.start_ns, before, after) - READING_NS, 0);
        worst->over_ns = most(worst->over_ns, apart - link.clock_bound_ns);
        worst->over_ns = most(worst->over_ns, stamp - link.clock_bound_ns);
        worst->bound_ns = most(worst->bound_ns, link.clock_bound_ns);
        if (!settled)
            continue;
        if (apart >= worst->apart_ns)
            worst->apart_after_s = (double)(hs_now_ns() - worst->began_ns) / 1e9;
        worst->apart_ns = most(worst->apart_ns, apart);
        worst->stamp_ns = most(worst->stamp_ns, stamp);
        worst->n++;
    }
    return true;
}

static void look(struct hs_job *job, stepaf_plan_h plan, int64_t *source,
                 const struct error *answers)
{
    int64_t until = hs_now_ns() + hs_option_int(job, "--seconds", 3) * 1000000000;
    int64_t settled = hs_now_ns() + hs_option_int(job, "--settle-ms", 0) * 1000000;
    int64_t limit = hs_option_int(job, "--limit-ns", 1000);
    struct worst *worsts = calloc((size_t)job->peers, sizeof(*worsts));
    bool good = HS_TRUE(worsts != NULL) && await_bounds(job);

    for (int p = 0; good && p < job->peers; p++)
        worsts[p].began_ns = hs_now_ns();
    for (long i = 1; good && *source; i++) {
        *source = hs_now_ns() < until;
        good = compare(job, plan, answers, worsts, hs_now_ns() >= settled);
        hs_sleep_us(i % PAUSE_EVERY ? 1000 : 100000); /* without the library */
    }
    for (int p = 0; good && p < job->peers; p++) {
        struct worst *worst = &worsts[p];
        int64_t there = worst->ways.there_ns, back = worst->ways.back_ns;
        end_minute(&worst->ways, 0);
        printf("attention %d, FFN %d, %ld times: clocks %lld ns apart (after %.0f s), stamps %lld "
               "ns off; at most "
               "%lld ns, says the bound\n",
               job->index, stepaf_peer_rank(job->ctx, p), worst->n, (long long)worst->apart_ns,
               worst->apart_after_s, (long long)worst->stamp_ns, (long long)worst->bound_ns);
        printf("attention %d, FFN %d: the shortest ways of the last minute took %lld ns there and "
               "%lld back; "
               "half the difference was at most %lld ns in any\n",
               job->index, stepaf_peer_rank(job->ctx, p), (long long)there, (long long)back,
               (long long)worst->ways.uneven_ns);
        HS_INT(worst->n, >, 0);
        HS_INT(worst->over_ns, <=, 0);
        HS_INT(worst->apart_ns, <=, limit);
        HS_INT(worst->stamp_ns, <=, limit);
    }
    fflush(stdout);
    free(worsts);
}

static void body(struct hs_job *job)
{
    if (!hs_open(job) ||
        !HS_OK(stepaf_key_declare(job->ctx, PUSH_KEY, STEPAF_PUSH, sizeof(int64_t), NULL)) ||
        !HS_OK(stepaf_key_declare(job->ctx, PULL_KEY, STEPAF_PULL, sizeof(struct error), NULL)))
        return;
    size_t bytes = sizeof(int64_t) + HS_MAX_RANKS * sizeof(struct error);
    void *memory;
    stepaf_plan_h plan = NULL;
    if (!HS_OK(stepaf_alloc(job->ctx, bytes, STEPAF_MEM_HOST, &memory)))
        return;
    int64_t *source = memory;
    struct error *answers = (struct error *)(source + 1);
    *source = 1;
    if (job->role == STEPAF_ATTENTION) {
        stepaf_tensor_t push = {PUSH_KEY, source, sizeof(*source)}, pull[HS_MAX_RANKS];
        for (int p = 0; p < job->peers; p++)
            pull[p] = (stepaf_tensor_t){PULL_KEY, &answers[p], sizeof(*answers)};
        if (!HS_OK(stepaf_plan_create(job->ctx, &push, 1, pull, job->peers, 0, &plan)))
            return;
    }
    if (!HS_OK(stepaf_commit(job->ctx)))
        return;
    hs_step("look at clocks");
    if (job->role == STEPAF_FFN)
        serve(job, answers);
    else
        look(job, plan, source, answers);
    hs_sync(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "clock",
                                        .options = "--seconds --limit-ns --settle-ms",
                                        .limit_s = 1200,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
