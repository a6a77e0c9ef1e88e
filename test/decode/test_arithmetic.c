/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic against plain loops in double: exponentials, norms, routing, draws, quantiles. */
#include <math.h>

#include "bench/decode/math_ops.h"
#include "bench/decode/measure.h"
#include "bench/decode/router.h"
#include "bench/decode/sample.h"
#include "bench/decode/verify.h"
#include "unit/unit.h"

static void exponentials(void)
{
    double worst = 0;
    for (float x = -87.0f; x < 88.0f; x += 0.0137f) {
        double exact = exp((double)x);
        double error = fabs(math_exp(x) - exact) / exact;
        worst = error > worst ? error : worst;
    }
    CU_ASSERT(worst < 2e-7);
    CU_ASSERT_EQUAL(math_exp(0), 1.0f);
    CU_ASSERT_EQUAL(math_exp(-100), 0.0f);
    CU_ASSERT(isfinite(math_exp(1000)));
}

static void softmax(void)
{
    float x[] = {1000.0f, 1001.0f, 999.0f, -1000.0f};
    double sum = 1 + exp(-0.5) + exp(-1);
    math_softmax(x, 4, 0.5f);
    CU_ASSERT_DOUBLE_EQUAL(x[0], exp(-0.5) / sum, 1e-7);
    CU_ASSERT_DOUBLE_EQUAL(x[1], 1 / sum, 1e-7);
    CU_ASSERT_DOUBLE_EQUAL(x[2], exp(-1) / sum, 1e-7);
    CU_ASSERT_EQUAL(x[3], 0.0f);
}

static void norms_and_gates(void)
{
    const float x[] = {3, 4, 0, 0};
    const float weight[] = {1, 2, 3, 4};
    float y[4];
    float gate[] = {0, 1, -2, 30};
    const float up[] = {5, 6, 7, 8};
    math_rms_norm(x, weight, 4, 0, y);
    CU_ASSERT_DOUBLE_EQUAL(y[0], 1.2, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(y[1], 3.2, 1e-6);
    CU_ASSERT_EQUAL(y[2], 0.0f);
    math_silu_product(gate, up, 4);
    CU_ASSERT_EQUAL(gate[0], 0.0f);
    CU_ASSERT_DOUBLE_EQUAL(gate[1], 6 / (1 + exp(-1)), 1e-5);
    CU_ASSERT_DOUBLE_EQUAL(gate[2], -14 / (1 + exp(2)), 1e-5);
    CU_ASSERT_DOUBLE_EQUAL(gate[3], 240, 1e-3);
}

/* A router whose row e is the unit vector e shows its input as the logits. */
static void routing(void)
{
    struct model_config config = {.hidden = 4, .experts = 4, .experts_chosen = 2};
    const float router[16] = {[0] = 1, [5] = 1, [10] = 1, [15] = 1};
    const float rows[] = {0, 3, 2, 1, 5, 5, 5, 5, NAN, NAN, NAN, NAN};
    float work[12], weights[6];
    int32_t ids[6];
    router_choose(&config, router, rows, 2, work, ids, weights);
    double sum = exp(-3) + 1 + exp(-1) + exp(-2);
    CU_ASSERT(ids[0] == 1 && ids[1] == 2);
    CU_ASSERT_DOUBLE_EQUAL(weights[0], 1 / sum, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(weights[1], exp(-1) / sum, 1e-6);
    CU_ASSERT(ids[2] == 0 && ids[3] == 1);
    config.normalize_chosen = 1;
    router_choose(&config, router, rows, 3, work, ids, weights);
    CU_ASSERT_DOUBLE_EQUAL(weights[0], 1 / (1 + exp(-1)), 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(weights[2], 0.5, 1e-6);
    CU_ASSERT(ids[4] >= 0 && ids[4] < 4 && ids[5] >= 0 && ids[5] < 4);
}

static void draws(void)
{
    const float logits[] = {0, 2, 1, 2};
    int counts[4] = {0};
    double sum = 1 + 2 * exp(2) + exp(1);
    CU_ASSERT_EQUAL(sample_greedy(logits, 4), 1);
    for (int i = 0; i < 20000; i++)
        counts[sample_draw(logits, 4, 1.0, 3, i % 100, i / 100)]++;
    CU_ASSERT_DOUBLE_EQUAL(counts[0], 20000 / sum, 150);
    CU_ASSERT_DOUBLE_EQUAL(counts[1], 20000 * exp(2) / sum, 400);
    CU_ASSERT_DOUBLE_EQUAL(counts[3], 20000 * exp(2) / sum, 400);
    CU_ASSERT_EQUAL(sample_draw(logits, 4, 0.7, 9, 5, 6), sample_draw(logits, 4, 0.7, 9, 5, 6));
    for (int i = 0; i < 50; i++) {
        int drawn = sample_draw(logits, 4, 0.001, 1, i, i);
        CU_ASSERT(drawn == 1 || drawn == 3);
    }
}

static void quantiles(void)
{
    float values[] = {5, 1, 4, 2, 3};
    stats_sort(values, 5);
    CU_ASSERT_EQUAL(stats_quantile(values, 5, 0.5), 3);
    CU_ASSERT_EQUAL(stats_quantile(values, 5, 0.99), 5);
    CU_ASSERT_EQUAL(stats_quantile(values, 5, 0), 1);
    CU_ASSERT_EQUAL(stats_quantile(values, 0, 0.5), 0);
    /* Nearest rank: 99 of 100 do not exceed the 99th, and one of two not the first. */
    float hundred[100];
    for (int i = 0; i < 100; i++)
        hundred[i] = (float)(i + 1);
    CU_ASSERT_EQUAL(stats_quantile(hundred, 100, 0.99), 99);
    CU_ASSERT_EQUAL(stats_quantile(hundred, 100, 0.5), 50);
    CU_ASSERT_EQUAL(stats_quantile(hundred, 2, 0.5), 1);
    CU_ASSERT_EQUAL(stats_quantile(hundred, 100, 1), 100);
}

/* An error that is no number is not forgotten for one that is small. */
static void verdicts(void)
{
    struct verify_result good = {.logits_error = 1e-7, .weight_error = 1e-7};
    struct verify_result bad = {.logits_error = NAN, .weight_error = NAN};
    struct verify_result sum = good;
    verify_merge(&sum, &bad);
    CU_ASSERT(isnan(sum.logits_error));
    CU_ASSERT(isnan(sum.weight_error));
    verify_merge(&sum, &good);
    CU_ASSERT(isnan(sum.logits_error));
    CU_ASSERT(isnan(sum.weight_error));
}

/* An exchange that starts at 1000, is told of at 1100, queues 200, is worked on for 300, and is
 * back at 1700; attention waits from 1400 to 1720. */
static void parts_of_an_exchange(void)
{
    const stepaf_timeline_t timeline = {.start_ns = 1000,
                                        .notified_ns = 100,
                                        .answered_ns = 700,
                                        .ffn_queue_ns = 200,
                                        .ffn_work_ns = 300};
    const struct exchange_times times = {700, 1000, 1110, 1400, 1720};
    struct layer_stats stats = {0};
    measure_add(&times, &timeline, &stats);
    CU_ASSERT_EQUAL(stats.exchanges, 1);
    CU_ASSERT_EQUAL(stats.attention_ns, 300);
    CU_ASSERT_EQUAL(stats.a2f_ns, 100);
    CU_ASSERT_EQUAL(stats.queue_ns, 200);
    CU_ASSERT_EQUAL(stats.ffn_ns, 300);
    CU_ASSERT_EQUAL(stats.f2a_ns, 100);
    CU_ASSERT_EQUAL(stats.wait_ns, 320);
    CU_ASSERT_EQUAL(stats.round_trip_ns, 720);
    /* 110 to start, and 120 of waiting after the work was done at 1600. */
    CU_ASSERT_EQUAL(stats.library_ns, 230);
    CU_ASSERT_EQUAL(stats.exposed_ns, 200);
}

int main(void)
{
    CU_TestInfo tests[] = {{"exponentials", exponentials},
                           {"softmax", softmax},
                           {"norms and gates", norms_and_gates},
                           {"routing", routing},
                           {"draws", draws},
                           {"quantiles", quantiles},
                           {"verdicts", verdicts},
                           {"parts of an exchange", parts_of_an_exchange},
                           CU_TEST_INFO_NULL};
    return unit_run(tests);
}
