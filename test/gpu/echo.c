/* SPDX-License-Identifier: Apache-2.0 */
/* Push and pull on streams, with fresh bytes each time and a look at all of them on both sides.
 *
 * --plans DIGITS: which of the plans below are used, all at once. --ops N: operations of each; of
 * those with very large tensors, fewer. --fixed 1: always the largest sizes. --seed N: of sizes.
 * --any 1: FFN ranks, of one attention rank each, take any. --gpus N: skip where there are fewer.
 *   --own 1: no process sees another's GPU.
 * --sms N: streams on so many multiprocessors only. --work N: so many launches beside each
 *   operation. */
#include "gpu/exchange.h"

#include <string.h>

enum { PLANS_MAX = 4, SYNC_ROUNDS = 64, KIB = 1 << 10, MIB = 1 << 20 };

/* Heads, pieces, in place, through a mailbox; aligned and not, and every depth. */
static const struct gx_shape shapes[] = {
    {.depth = 3, .n_push = 3, .push = {84, 8, 1}, .n_pull = 2, .pull = {83, 72}},
    {.depth = 1,
     .n_push = 2,
     .push = {85, 80},
     .n_pull = 3,
     .pull = {5, 84, 125},
     .memory = GX_MALLOC,
     .own_receive = true,
     .skew = 3},
    {.depth = 2,
     .n_push = 2,
     .push = {917504, 8192},
     .n_pull = 1,
     .pull = {1835008},
     .memory = GX_MALLOC},
    {.depth = 3,
     .n_push = 3,
     .push = {4097, 125, 16},
     .n_pull = 2,
     .pull = {65537, 124},
     .memory = GX_POOL,
     .own_receive = true,
     .skew = 5},
    {.depth = 1,
     .n_push = 1,
     .push = {9 * MIB + 5},
     .n_pull = 2,
     .pull = {9 * MIB + 17, 8 * MIB + 1},
     .memory = GX_MALLOC,
     .own_receive = true,
     .skew = 1},
    {.depth = 2,
     .n_push = 2,
     .push = {9 * MIB, 40},
     .n_pull = 2,
     .pull = {17 * MIB / 2 + 3, 7000},
     .memory = GX_POOL,
     .own_receive = true},
    {.depth = 1, .n_push = 1, .push = {64 * MIB}, .n_pull = 1, .pull = {64 * MIB}},
    {.depth = 3,
     .n_push = 4,
     .push = {4 * KIB, 4 * MIB, 64, 32 * KIB},
     .n_pull = 1,
     .pull = {4 * MIB}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* A plan, what is left to do, and perhaps a second stream for the second half of operations. */
struct lane {
    struct gx_plan plan;
    long long ops, left;
    cudaStream_t second;
    cudaEvent_t first_done, second_done;
};

static struct lane lanes[PLANS_MAX];
static int n_lanes;
static long long
    work; /* launches beside each operation, at either end: a stream may be full of them */

static bool make_lane(struct hs_job *job, int shape, long long ops)
{
    struct lane *lane = &lanes[n_lanes];

    if (!HS_INT(n_lanes, <, PLANS_MAX) || !HS_INT(shape, >=, 0) || !HS_INT(shape, <, SHAPES) ||
        !gx_plan_make(job, job->ctx, shape, &shapes[shape], &lane->plan))
        return false;
    lane->plan.fixed = hs_option_int(job, "--fixed", 0) != 0;
    lane->plan.seed = (uint64_t)hs_option_int(job, "--seed", 1);
    lane->ops = shapes[shape].push[0] > 16 * MIB ? ops / 50 + 1 : ops;
    lane->left = lane->ops;
    n_lanes++;
    if (shape % 2 == 0)
        return true;
    lane->second = gx_stream();
    return lane->second != NULL &&
           GX_CUDA(cudaEventCreateWithFlags(&lane->first_done, cudaEventDisableTiming)) &&
           GX_CUDA(cudaEventCreateWithFlags(&lane->second_done, cudaEventDisableTiming));
}

/* How many operations of the lane are under way at once in this round: the same on all ranks. */
static int burst(const struct lane *lane, uint64_t round)
{
    uint64_t random = hs_mix(lane->plan.seed ^ round << 8 ^ (unsigned)lane->plan.id);
    int n = 1 + (int)(random % lane->plan.shape.depth);

    return n < lane->left ? n : (int)lane->left;
}

/* Let stream @a to go on only when @a from has come here. */
static bool order(struct lane *lane, cudaEvent_t event, cudaStream_t from, cudaStream_t to)
{
    return lane->second == NULL ||
           (GX_CUDA(cudaEventRecord(event, from)) && GX_CUDA(cudaStreamWaitEvent(to, event, 0)));
}

/* A second stream reads the answers; the first goes on when it is through with them. */
static bool finish(struct lane *lane, int n)
{
    cudaStream_t stream = lane->second != NULL ? lane->second : lane->plan.stream;

    for (int i = 0; i < n; i++)
        if (!HS_OK(gx_wait(&lane->plan, stream)))
            return false;
    return order(lane, lane->second_done, stream, lane->plan.stream);
}

static bool launch_work(cudaStream_t stream)
{
    bool good = true;

    for (long long i = 0; i < work && good; i++)
        good = GX_CUDA(gx_launch_delay(1, stream));
    return good;
}

static bool attend(uint64_t round)
{
    int n[PLANS_MAX];

    for (int i = 0; i < n_lanes; i++) {
        n[i] = burst(&lanes[i], round);
        for (int k = 0; k < n[i]; k++)
            if (!launch_work(lanes[i].plan.stream) || !HS_OK(gx_start(&lanes[i].plan, NULL, NULL)))
                return false;
    }
    for (int i = 0; i < n_lanes; i++) {
        if (!finish(&lanes[i], n[i]))
            return false;
        lanes[i].left -= n[i];
    }
    return true;
}

/* Receive @a n, then answer them; with two streams the second one answers. */
static bool serve_burst(struct lane *lane, int n)
{
    cudaStream_t stream = lane->second != NULL ? lane->second : lane->plan.stream;

    for (int k = 0; k < n; k++)
        if (!HS_OK(gx_recv(&lane->plan, NULL)))
            return false;
    if (!order(lane, lane->first_done, lane->plan.stream, stream))
        return false;
    for (int k = 0; k < n; k++)
        if (!launch_work(stream) || !HS_OK(gx_respond(&lane->plan, stream)))
            return false;
    return true;
}

static bool serve(uint64_t round)
{
    for (int i = 0; i < n_lanes; i++) {
        struct lane *lane = &lanes[i];
        int n = burst(lane, round);
        bool one_by_one = hs_mix(round ^ 77) % 2 != 0, good = true;

        for (int k = 0; one_by_one && good && k < n; k++)
            good = serve_burst(lane, 1);
        if (!good || (!one_by_one && !serve_burst(lane, n)))
            return false;
        lane->left -= n;
    }
    return true;
}

static bool sync_all(void)
{
    for (int i = 0; i < n_lanes; i++)
        if (!gx_sync(&lanes[i].plan) ||
            (lanes[i].second != NULL && !gx_sync_stream(lanes[i].second, "a second stream")))
            return false;
    return true;
}

static bool run(struct hs_job *job)
{
    bool more = true;

    for (uint64_t round = 0; more; round++) {
        more = false;
        if (job->role == STEPAF_ATTENTION ? !attend(round) : !serve(round))
            return false;
        if (round % SYNC_ROUNDS == 0 && (!sync_all() || hs_hopeless(job)))
            return false;
        for (int i = 0; i < n_lanes; i++)
            more = more || lanes[i].left > 0;
    }
    return sync_all();
}

static void body(struct hs_job *job)
{
    const char *plans = hs_option_text(job, "--plans", "0");
    long long ops = hs_option_int(job, "--ops", 10000);

    if (!gx_open(job))
        return;
    ops = gx_scaled(job, ops, 20);
    work = hs_option_int(job, "--work", 0);
    hs_step("set-up");
    for (; *plans != '\0'; plans++)
        if (!make_lane(job, *plans - '0', ops))
            return;
    if (!HS_OK(stepaf_commit(job->ctx)))
        return;
    for (int i = 0; i < n_lanes; i++)
        if (!gx_plan_ready(&lanes[i].plan))
            return;
    if (!hs_sync(job))
        return;
    hs_step("exchange");
    run(job);
    for (int i = 0; i < n_lanes; i++)
        gx_verify(&lanes[i].plan, (unsigned long long)lanes[i].ops);
    hs_sync(job);
    for (int i = 0; i < n_lanes; i++)
        gx_plan_end(&lanes[i].plan);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "echo",
                                        .options =
                                            "--plans --ops --fixed --seed --any --gpus --own --sms "
                                            "--work",
                                        .limit_s = 240,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
