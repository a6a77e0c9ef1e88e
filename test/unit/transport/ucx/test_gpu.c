/* SPDX-License-Identifier: Apache-2.0 */
/* UCX and GPU memory, both made up: when it is registered, and what speaks against it. */
#include "device/cuda_fake.h"
#include "gpu_case.h"
#include "ucx_fabric.h"
#include "ucx_gpu.h"
#include "unit.h"

enum { BYTES = 5000, AT = 700 };

static const char by_tcp[] = "#   resource 1 : md 1 dev 1 flags -- tcp/lo\n"
                             "#   resource 2 : md 2 dev 2 flags -- ud_verbs/mlx5_0:1\n";
static const char by_dc[] = "#   resource 1 : md 1 dev 1 flags -- tcp/lo\n"
                            "#   resource 2 : md 2 dev 2 flags -- a_transport_of_a_long_name/a\n"
                            "#   resource 3 : md 3 dev 3 flags -- b_transport_of_a_long_name/b\n"
                            "#   resource 4 : md 4 dev 4 flags -- c_transport_of_a_long_name/c\n"
                            "#   resource 5 : md 5 dev 5 flags -- dc_mlx5/mlx5_0:1\n";

static struct side a;
static struct stepaf_mem region;
static char text[STEPAF_REASON_MAX];

static stepaf_status_t add(void)
{
    const struct cuda_piece *piece = cuda_fake_piece(AT + BYTES, 0, true);

    region = (struct stepaf_mem){.base = piece->base + AT,
                                 .bytes = BYTES,
                                 .kind = STEPAF_MEM_CUDA,
                                 .fd = -1,
                                 .gpu = gpu_case};
    side_open(&a, 1);
    stepaf_status_t status = stepaf_ucx_ops.reg_mem(a.transport, &region);
    stepaf_ucx_ops.describe_gpu(a.transport, text);
    return status;
}

static void take_away(void)
{
    stepaf_ucx_ops.dereg_mem(a.transport, &region);
    CU_ASSERT_PTR_NULL(region.registration[a.transport->index]);
    side_close(&a);
    gpu_case_end();
}

static void expect_direct(const char *words)
{
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    CU_ASSERT_PTR_NOT_NULL(region.registration[a.transport->index]);
    CU_ASSERT(ucx_gpu.base == region.base && ucx_gpu.bytes == BYTES && ucx_gpu.n_mapped == 1);
    CU_ASSERT_EQUAL(cuda_fake.n_synced, 1);
    UNIT_STRING(text, words);
    take_away();
}

static void expect_staged(const char *words)
{
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    CU_ASSERT_PTR_NULL(region.registration[a.transport->index]);
    CU_ASSERT_EQUAL(ucx_gpu.n_mapped, 0);
    CU_ASSERT_EQUAL(cuda_fake.n_synced, 0);
    UNIT_CONTAINS(text, "staged: UCX 1.");
    UNIT_CONTAINS(text, words);
    take_away();
}

static void expect_refused(const char *words)
{
    CU_ASSERT_EQUAL(add(), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_UCX_GPU=direct: UCX 1.18.0: ");
    UNIT_CONTAINS(stepaf_last_error()->text, words);
    take_away();
}

static void what_cards_reach_is_registered(void)
{
    gpu_case_begin("auto");
    expect_direct("UCX memory type cuda");
    gpu_case_begin("auto");
    ucx_fabric.resources = by_dc;
    expect_direct("UCX memory type cuda");
    gpu_case_begin("direct");
    ucx_fabric.resources = by_tcp;
    expect_direct("UCX memory type cuda (STEPAF_UCX_GPU=direct: UCX copies with CUDA calls)");
}

static void the_rest_is_staged_and_the_reason_is_told(void)
{
    gpu_case_begin("staged");
    expect_staged("STEPAF_UCX_GPU=staged");
    gpu_case_begin("auto");
    ucx_gpu.has_cuda = false;
    expect_staged("this UCX is built without CUDA, or UCX_TLS excludes CUDA");
    gpu_case_begin("auto");
    ucx_fabric.resources = by_tcp;
    expect_staged("UCX has no RDMA device here");
    gpu_case_begin(
        "auto"); /* which gives no dma-buf to cards yet, and the GPU offers no other way */
    ucx_fabric.minor = 13;
    expect_staged("no NIC of UCX reaches GPU memory");
    gpu_case_begin("auto");
    cuda_fake.has_dmabuf = false;
    expect_staged("no NIC of UCX reaches GPU memory");
    gpu_case_begin("auto");
    cuda_fake.two_ways = true;
    expect_staged("two paths to its memory");
    gpu_case_begin("auto");
    cuda_fake.flush_options = 0;
    expect_staged("cannot flush");
    gpu_case_begin("auto");
    ucx_gpu.refuse = UCS_ERR_NO_MEMORY; /* the card's, not this process's */
    expect_staged("cannot register GPU memory: an error");
}

static void direct_takes_it_or_fails(void)
{
    gpu_case_begin("direct");
    ucx_gpu.has_cuda = false;
    expect_refused("this UCX is built without CUDA");
    gpu_case_begin("direct");
    ucx_gpu.refuse = UCS_ERR_IO_ERROR;
    expect_refused("cannot register GPU memory: an error");
    gpu_case_begin("direct");
    cuda_fake.two_ways = true;
    expect_refused("two paths");
    gpu_case_begin("direct");
    cuda_fake.flush_options = 0;
    expect_refused("cannot flush");
}

static void a_context_that_cannot_be_entered_is_said(void)
{
    gpu_case_begin("auto");
    side_open(&a, 1);
    (void)stepaf_gpu_rdma(gpu_case);
    region = (struct stepaf_mem){.base = cuda_fake_piece(BYTES, 0, true)->base,
                                 .bytes = BYTES,
                                 .kind = STEPAF_MEM_CUDA,
                                 .fd = -1,
                                 .gpu = gpu_case};
    cuda_fake.error = CUDA_ERROR_INVALID_CONTEXT;
    cuda_fake.fail_at = cuda_fake.n_calls + 1;
    CU_ASSERT_EQUAL(stepaf_ucx_ops.reg_mem(a.transport, &region), STEPAF_OK);
    cuda_fake.fail_at = 0;
    stepaf_ucx_ops.describe_gpu(a.transport, text);
    UNIT_CONTAINS(text, "staged: UCX 1.18.0: ");
    take_away();
}

static void a_try_says_the_same(void)
{
    struct stepaf_env env;

    gpu_case_begin("auto");
    CU_ASSERT_EQUAL_FATAL(stepaf_env_load(&env), STEPAF_OK);
    stepaf_ucx_ops.probe_gpu(&env, gpu_case, text);
    UNIT_STRING(text, "UCX memory type cuda");
    ucx_gpu.has_cuda = false;
    stepaf_ucx_ops.probe_gpu(&env, gpu_case, text);
    UNIT_CONTAINS(text, "staged: UCX 1.18.0: this UCX is built without CUDA");
    ucx_fabric.refuse_call = 1;
    stepaf_ucx_ops.probe_gpu(&env, gpu_case, text);
    UNIT_CONTAINS(text, "ucx: cannot open");
    stepaf_env_free(&env);
    gpu_case_end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what cards reach is registered", what_cards_reach_is_registered},
        {"the rest is staged, and the reason is told", the_rest_is_staged_and_the_reason_is_told},
        {"direct takes it or fails", direct_takes_it_or_fails},
        {"a context that cannot be entered is said", a_context_that_cannot_be_entered_is_said},
        {"a try says the same", a_try_says_the_same},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
