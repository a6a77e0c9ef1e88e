/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_perf: sizes, shapes and numbers from the command line, and how rows are cut up. */
#include "bench/perf/case.h"
#include "bench/perf/fail.h"
#include "bench/perf/options_rows.h"
#include "unit.h"

static void expect_sizes(const char *text, int n, const size_t *expected)
{
    struct perf_sizes sizes = {0};

    CU_ASSERT_EQUAL(perf_sizes_parse(text, &sizes), 0);
    CU_ASSERT_EQUAL(sizes.n, n);
    for (int i = 0; i < n && i < sizes.n; i++)
        CU_ASSERT_EQUAL(sizes.bytes[i], expected[i]);
}

static void expect_bad_sizes(const char *text)
{
    struct perf_sizes sizes = {.n = 7};

    CU_ASSERT_EQUAL(perf_sizes_parse(text, &sizes), -1);
    CU_ASSERT_EQUAL(sizes.n, 7);
    UNIT_CONTAINS(perf_fail_text(), text);
}

static void size_lists(void)
{
    expect_sizes("64", 1, (size_t[]){64});
    expect_sizes("1", 1, (size_t[]){1});
    expect_sizes("4294967295", 1, (size_t[]){4294967295u});
    expect_sizes("4K,64k,1M,1g", 4, (size_t[]){4096, 65536, 1048576, 1073741824});
    expect_sizes("917504,8", 2, (size_t[]){917504, 8});
}

static void size_sweeps(void)
{
    expect_sizes("8:64", 4, (size_t[]){8, 16, 32, 64});
    expect_sizes("8:100", 4, (size_t[]){8, 16, 32, 64});
    expect_sizes("8:8", 1, (size_t[]){8});
    expect_sizes("1K:16K:4", 3, (size_t[]){1024, 4096, 16384});
    expect_sizes("3:3G:1000", 4, (size_t[]){3, 3000, 3000000, 3000000000u});
    expect_sizes("64,8:16,1", 4, (size_t[]){64, 8, 16, 1});
    /* The last step must not run past the end of the number. */
    expect_sizes("1G:4294967295", 2, (size_t[]){1073741824, 2147483648u});
    expect_sizes("1:2:18446744073709551615", 1, (size_t[]){1});
}

static void bad_sizes(void)
{
    static const char *const bad[] = {"",           ",",
                                      "0",          "-1",
                                      " 8",         "8 ",
                                      "8,",         ",8",
                                      "8,,9",       "8:",
                                      ":8",         "16:8",
                                      "8:16:",      "8:16:1",
                                      "8:16:0",     "4G",
                                      "8T",         "8KB",
                                      "0x10",       "1e3",
                                      "4294967296", "99999999999999999999",
                                      "8:16:2:2",   "K"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        expect_bad_sizes(bad[i]);
    /* 8 times 32 sizes are as many as there may be; one more is too many. */
    struct perf_sizes sizes;
    CU_ASSERT_EQUAL(perf_sizes_parse("1:2147483648,1:2147483648,1:2147483648,1:2147483648,"
                                     "1:2147483648,1:2147483648,1:2147483648,1:2147483648",
                                     &sizes),
                    0);
    CU_ASSERT_EQUAL(sizes.n, PERF_MAX_SIZES);
    expect_bad_sizes("1:2147483648,1:2147483648,1:2147483648,1:2147483648,1:2147483648,"
                     "1:2147483648,1:2147483648,1:2147483648,1");
}

static void shapes(void)
{
    static const char *const bad[] = {"",           "x",    "0x8",  "8x",  "x8",
                                      "8xx8",       "8,",   "-1x8", "8*8", "1x1x1x1x1x1x1x1x1",
                                      "4294967296", "8 x 8"};
    struct perf_shapes list = {0};
    size_t bytes = 0;

    CU_ASSERT_EQUAL(perf_shapes_parse("128x7168,1X2x3x4x5x6x7x8,5", &list), 0);
    CU_ASSERT_EQUAL(list.n, 3);
    CU_ASSERT_EQUAL(list.shape[0].ndim, 2);
    CU_ASSERT_EQUAL(list.shape[0].dims[0], 128);
    CU_ASSERT_EQUAL(list.shape[0].dims[1], 7168);
    CU_ASSERT_EQUAL(list.shape[1].ndim, 8);
    CU_ASSERT_EQUAL(list.shape[1].dims[7], 8);
    CU_ASSERT_EQUAL(list.shape[2].ndim, 1);
    CU_ASSERT_EQUAL(perf_shape_bytes(&list.shape[0], STEPAF_F8_E4M3, &bytes), 0);
    CU_ASSERT_EQUAL(bytes, 917504);
    CU_ASSERT_EQUAL(perf_shape_bytes(&list.shape[0], STEPAF_BF16, &bytes), 0);
    CU_ASSERT_EQUAL(bytes, 1835008);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        list.n = 7;
        CU_ASSERT_EQUAL(perf_shapes_parse(bad[i], &list), -1);
        CU_ASSERT_EQUAL(list.n, 7);
    }
    CU_ASSERT_EQUAL(perf_shapes_parse("65536x65536", &list), 0);
    CU_ASSERT_EQUAL(perf_shape_bytes(&list.shape[0], STEPAF_U8, &bytes), -1);
    CU_ASSERT_EQUAL(perf_shapes_parse("4294967295x4294967295x4294967295", &list), 0);
    CU_ASSERT_EQUAL(perf_shape_bytes(&list.shape[0], STEPAF_U8, &bytes), -1);
    CU_ASSERT_EQUAL(perf_shapes_parse("4294967295", &list), 0);
    CU_ASSERT_EQUAL(perf_shape_bytes(&list.shape[0], STEPAF_U8, &bytes), 0);
    CU_ASSERT_EQUAL(perf_shape_bytes(&list.shape[0], STEPAF_BF16, &bytes), -1);
}

static void words_and_numbers(void)
{
    stepaf_dtype_t dtype = STEPAF_F64;
    uint64_t number = 7;

    CU_ASSERT_EQUAL(perf_dtype_parse("fp8", &dtype), 0);
    CU_ASSERT_EQUAL(dtype, STEPAF_F8_E4M3);
    CU_ASSERT_EQUAL(perf_dtype_parse("bf16", &dtype), 0);
    CU_ASSERT_EQUAL(dtype, STEPAF_BF16);
    CU_ASSERT_EQUAL(perf_dtype_parse("bfloat16", &dtype), -1);
    CU_ASSERT_EQUAL(dtype, STEPAF_BF16);
    UNIT_CONTAINS(perf_fail_text(), " fp8_e5m2");
    CU_ASSERT_EQUAL(perf_number_parse("12", "--n", 1, 12, &number), 0);
    CU_ASSERT_EQUAL(number, 12);
    CU_ASSERT_EQUAL(perf_number_parse("13", "--n", 1, 12, &number), -1);
    CU_ASSERT_EQUAL(perf_number_parse("0", "--n", 1, 12, &number), -1);
    CU_ASSERT_EQUAL(perf_number_parse("1x", "--n", 1, 12, &number), -1);
    CU_ASSERT_EQUAL(perf_number_parse("", "--n", 0, 12, &number), -1);
    UNIT_CONTAINS(perf_fail_text(), "--n");
    CU_ASSERT_EQUAL(number, 12);
}

static void rows_pair_up(void)
{
    static struct perf_options options;
    struct perf_row_input input = {0};

    CU_ASSERT_EQUAL(perf_rows_make(&input, &options), 0);
    CU_ASSERT_EQUAL(options.n_rows, 21);
    CU_ASSERT_EQUAL(options.rows[20].pull_bytes, 8u << 20);
    input.push_size = (struct perf_sizes){.n = 1, .bytes = {8}};
    input.pull_size = (struct perf_sizes){.n = 3, .bytes = {1, 2, 3}};
    CU_ASSERT_EQUAL(perf_rows_make(&input, &options), 0);
    CU_ASSERT_EQUAL(options.n_rows, 3);
    CU_ASSERT_EQUAL(options.rows[2].push_bytes, 8);
    CU_ASSERT_EQUAL(options.rows[2].pull_bytes, 3);
    input.push_size.n = 2;
    CU_ASSERT_EQUAL(perf_rows_make(&input, &options), -1);
    input.shapes = (struct perf_shapes){.n = 1, .shape = {{2, {4, 8}}}};
    CU_ASSERT_EQUAL(perf_rows_make(&input, &options), -1);
    UNIT_CONTAINS(perf_fail_text(), "exclude");
}

/* With scatter every row goes to exactly one FFN rank, in order. */
static void slices_add_up(void)
{
    static struct perf_options options = {
        .n_rows = 1, .microbatches = 3, .depth = 2, .scatter = 1, .route_topk = 8};
    struct perf_case c;

    options.push_dtype = STEPAF_F8_E4M3;
    options.pull_dtype = STEPAF_BF16;
    for (int ffn = 1; ffn <= 9; ffn++) {
        size_t next = 0;

        options.rows[0].shape = (struct perf_shape){2, {7, 16}};
        perf_case_make(&options, 0, 2, ffn, &c);
        CU_ASSERT_EQUAL(c.window, 6);
        CU_ASSERT_EQUAL(c.n_push, 3);
        CU_ASSERT_EQUAL(c.push_bytes, 7 * (16 + 8 * 4 + 8 * 4));
        for (int f = 0; f < ffn; f++) {
            size_t offset;
            size_t bytes = perf_case_slice(&c, &c.pull, f, &offset);

            CU_ASSERT_EQUAL(offset, next);
            CU_ASSERT_EQUAL(bytes % 32, 0);
            CU_ASSERT(bytes <= perf_case_largest(&c, &c.pull, NULL));
            CU_ASSERT_EQUAL(perf_case_active(&c, f), bytes > 0);
            next += bytes;
        }
        CU_ASSERT_EQUAL(next, c.pull.bytes);
        CU_ASSERT_EQUAL(c.op_bytes, c.push_bytes + c.pull_bytes);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"size lists", size_lists},
        {"size sweeps", size_sweeps},
        {"bad sizes", bad_sizes},
        {"shapes", shapes},
        {"words and numbers", words_and_numbers},
        {"rows pair up", rows_pair_up},
        {"slices add up", slices_add_up},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
