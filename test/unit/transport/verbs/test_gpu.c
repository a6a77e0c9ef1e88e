/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA and GPU memory, both made up: each way to register it, and what speaks against each. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "device/cuda_fake.h"
#include "unit.h"
#include "verbs_side.h"

enum { BYTES = 5000, AT = 700 };

static struct vside a;
static struct stepaf_gpu *gpu;
static struct stepaf_mem region;
static char text[STEPAF_REASON_MAX];

/* A GPU that can everything, and a region of its memory. */
static void begin(const char *settings)
{
    cuda_fake_begin();
    cuda_fake.has_dmabuf = cuda_fake.has_rdma = true;
    cuda_fake.flush_options = CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
    verbs_device_reset();
    vside_settings = settings;
}

static stepaf_status_t add(void)
{
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
    const struct cuda_piece *piece = cuda_fake_piece(AT + BYTES, 0, true);
    verbs_device.gpu = piece->base;
    verbs_device.gpu_bytes = piece->bytes;
    region = (struct stepaf_mem){
        .base = piece->base + AT, .bytes = BYTES, .kind = STEPAF_MEM_CUDA, .fd = -1, .gpu = gpu};
    vside_open(&a, 1);
    stepaf_status_t status = stepaf_verbs_ops.reg_mem(a.transport, &region);
    if (cuda_fake.last_fd)
        CU_ASSERT(fcntl(cuda_fake.last_fd, F_GETFD) < 0); /* closed, whatever came of it */
    stepaf_verbs_ops.describe_gpu(a.transport, text);
    return status;
}

static void end(void)
{
    vside_close(&a);
    CU_ASSERT_PTR_NULL(region.registration[STEPAF_TRANSPORT_verbs]);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
    stepaf_gpu_close(gpu);
    CU_ASSERT_EQUAL(cuda_fake.n_held, 0);
    cuda_fake_end();
}

/* It is registered as it is, by the way that @a words name. */
static void expect_direct(const char *words)
{
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    CU_ASSERT_PTR_NOT_NULL(region.registration[STEPAF_TRANSPORT_verbs]);
    CU_ASSERT(verbs_device.last_mr.addr == region.base && verbs_device.last_mr.length == BYTES);
    CU_ASSERT(verbs_device.last_access & IBV_ACCESS_RELAXED_ORDERING);
    CU_ASSERT_EQUAL(cuda_fake.n_synced, 1);
    UNIT_CONTAINS(text, words);
    end();
}

static void expect_staged(const char *words)
{
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    CU_ASSERT_PTR_NULL(region.registration[STEPAF_TRANSPORT_verbs]);
    CU_ASSERT_EQUAL(verbs_device.n_registered, 1); /* the control memory */
    CU_ASSERT_EQUAL(cuda_fake.n_synced, 0);
    UNIT_CONTAINS(text, "staged");
    UNIT_CONTAINS(text, words);
    end();
}

static void expect_refused(const char *words)
{
    CU_ASSERT_EQUAL(add(), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_VERBS_GPU=");
    UNIT_CONTAINS(stepaf_last_error()->text, "fake0:1");
    UNIT_CONTAINS(stepaf_last_error()->text, words);
    end();
}

static void dmabuf_comes_first(void)
{
    begin("");
    verbs_device.peermem = true;
    expect_direct("dma-buf over fake0:1");
    CU_ASSERT(verbs_device.last_fd > 0);
    begin("VERBS_GPU=dmabuf");
    expect_direct("dma-buf over fake0:1");
}

static void peer_memory_is_next(void)
{
    begin("");
    verbs_device.peermem = true;
    cuda_fake.has_dmabuf = false;
    expect_direct("peer memory over fake0:1 (no dma-buf: GPU 0 exports no memory");
    begin("");
    verbs_device.peermem = true;
    verbs_device.refuse_dmabuf = EOPNOTSUPP;
    expect_direct("peer memory over fake0:1 (no dma-buf: Operation not supported)");
    begin("VERBS_GPU=peermem");
    verbs_device.peermem = true;
    expect_direct("peer memory over fake0:1");
}

static void the_rest_is_staged_and_the_reason_is_told(void)
{
    begin("");
    verbs_device.refuse_dmabuf = ENOSYS;
    expect_staged("libibverbs has no ibv_reg_dmabuf_mr");
    begin("");
    verbs_device.refuse_dmabuf = EINVAL;
    expect_staged("no dma-buf: Invalid argument, no peer memory: Bad address (is nvidia_peermem "
                  "loaded?)");
    begin("");
    cuda_fake.has_dmabuf = cuda_fake.has_rdma = false;
    expect_staged("no peer memory: GPU 0 offers no GPUDirect RDMA");
    begin("");
    cuda_fake_grow_old();
    cuda_fake.ordering = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
    expect_staged("cuMemGetHandleForAddressRange");
    begin("VERBS_GPU=staged");
    verbs_device.peermem = true;
    expect_staged("STEPAF_VERBS_GPU=staged");
}

/* What the GPU may see too late is not written to at all. */
static void memory_that_cannot_be_flushed_is_staged(void)
{
    begin("");
    verbs_device.peermem = true;
    cuda_fake.flush_options = 0;
    expect_staged("cannot flush");
    begin("");
    cuda_fake.flush_options = 0;
    cuda_fake.ordering = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
    expect_direct("dma-buf");
}

/* As on Grace: dma-buf by PCIe if the card takes that, and a read by the card before the GPU
 * may. */
static void two_ways_are_flushed_by_the_card(void)
{
    for (int way = 0; way < 3; way++) {
        static struct vside b;
        begin(way == 2 ? "NET_DEVICES=fake0,fake1" : "");
        cuda_fake.two_ways = true;
        cuda_fake.knows_pcie = way != 1;
        cuda_fake.flush_options = 0;
        vside_open(&b, 1);
        CU_ASSERT_EQUAL_FATAL(add(), STEPAF_OK);
        UNIT_CONTAINS(text, "dma-buf over fake0:1");
        CU_ASSERT_EQUAL(cuda_fake.last_flags, way != 1);
        CU_ASSERT_PTR_NOT_NULL(region.registration[STEPAF_TRANSPORT_verbs]);
        vside_join(&a, &b);
        CU_ASSERT_EQUAL(verbs_device.n_reads, 0);
        CU_ASSERT_EQUAL(stepaf_verbs_ops.flush_gpu(a.links[0]), STEPAF_OK);
        CU_ASSERT_EQUAL(verbs_device.n_reads, way == 2 ? 2 : 1);
        verbs_device.fail_after = 1;
        verbs_device.fail_status = IBV_WC_RETRY_EXC_ERR;
        CU_ASSERT_EQUAL(stepaf_verbs_ops.flush_gpu(a.links[0]), STEPAF_ERR_TRANSPORT);
        UNIT_CONTAINS(stepaf_last_error()->text, "fake0:1: the read that flushes");
        CU_ASSERT_EQUAL(stepaf_verbs_ops.flush_gpu(a.links[0]), STEPAF_OK); /* by another one */
        vside_close(&b);
        end();
    }
    begin("VERBS_PEER_TIMEOUT_US=1000");
    cuda_fake.two_ways = true;
    static struct vside b;
    vside_open(&b, 1);
    CU_ASSERT_EQUAL_FATAL(add(), STEPAF_OK);
    vside_join(&a, &b);
    verbs_device.silent = 1;
    CU_ASSERT_EQUAL(stepaf_verbs_ops.flush_gpu(a.links[0]), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "it does not complete");
    vside_close(&b);
    end();
}

/* Where the card cannot, it does not write there at all. */
static void two_ways_without_a_read_are_staged(void)
{
    begin("");
    cuda_fake.two_ways = true;
    verbs_device.refuse_rtr = EOPNOTSUPP;
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    CU_ASSERT_PTR_NULL(region.registration[STEPAF_TRANSPORT_verbs]);
    UNIT_CONTAINS(text, "staged: fake0:1: no read to flush the writes: Operation not");
    end();
    begin("VERBS_CONNECT=cm");
    cuda_fake.two_ways = true;
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    CU_ASSERT_PTR_NULL(region.registration[STEPAF_TRANSPORT_verbs]);
    end();
}

static void what_was_asked_for_is_an_error(void)
{
    begin("VERBS_GPU=dmabuf");
    verbs_device.peermem = true;
    verbs_device.refuse_dmabuf = EOPNOTSUPP;
    expect_refused("no dma-buf: Operation not supported");
    begin("VERBS_GPU=peermem");
    expect_refused("nvidia_peermem");
    begin("VERBS_GPU=peermem");
    verbs_device.peermem = true;
    cuda_fake.flush_options = 0;
    expect_refused("cannot flush");
}

/* A link uses all its rails: what one does not take, none has. */
static void one_rail_that_refuses_is_enough(void)
{
    begin("NET_DEVICES=fake0,fake1");
    verbs_device.refuse_mr = 4; /* after the control memory, and the first rail's */
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    CU_ASSERT_PTR_NULL(region.registration[STEPAF_TRANSPORT_verbs]);
    UNIT_CONTAINS(text, "staged: fake1:1");
    end();
}

static void a_failing_export_is_told(void)
{
    begin("");
    cuda_fake.error = CUDA_ERROR_OUT_OF_MEMORY;
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
    int n = cuda_fake.n_calls;
    stepaf_gpu_close(gpu);
    cuda_fake.n_calls = 0;
    cuda_fake.fail_at = n + 7; /* after five attributes and a context */
    expect_staged("cannot export 5000 bytes of GPU 0 as dma-buf");
}

/* The processor cannot read what lies there, so that it must not put it into a request. */
static void small_tensors_are_not_inline(void)
{
    static struct vside b;
    struct stepaf_xfer xfers[2];
    struct stepaf_rmem *rmem;

    begin("");
    vside_open(&b, 1);
    CU_ASSERT_EQUAL_FATAL(add(), STEPAF_OK);
    vside_join(&a, &b);
    const struct stepaf_mem *host = vside_memory(&a, BYTES);
    rmem = vside_import(&a, 0, &b, vside_memory(&b, BYTES));
    struct stepaf_post post = vside_post(&a, 0, xfers, 2, 16, rmem);
    for (unsigned on_gpu = 0; on_gpu < 2; on_gpu++) {
        unsigned n = verbs_device.n_inline;
        xfers[0].src = on_gpu ? region.base : host->base;
        xfers[0].src_mem = on_gpu ? &region : host;
        memset((void *)(uintptr_t)xfers[0].src, 7 + (int)on_gpu, 16);
        verbs_device.holds = true;
        CU_ASSERT_EQUAL(vside_send(&post), on_gpu ? STEPAF_POST_POSTED : STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(verbs_device.n_inline, n + 2 - on_gpu);
        verbs_device.holds = false;
        verbs_device_go();
        (void)vside_progress(&b);
        (void)vside_progress(&a);
        CU_ASSERT_EQUAL(b.n_messages, on_gpu + 1);
        CU_ASSERT_EQUAL(b.regions[0].base[15], 7 + on_gpu);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    }
    stepaf_verbs_ops.release_mem(a.links[0], rmem);
    vside_close(&b);
    end();
}

/* For stepaf_info: without a context, and nothing stays. */
static void it_can_be_tried_beforehand(void)
{
    static const struct {
        const char *net_devices;
        int gpu;
        bool dmabuf;
        const char *words;
    } cases[] = {
        {"", STEPAF_ENV_VERBS_GPU_auto, true, "dma-buf over fake0:1"},
        {"", STEPAF_ENV_VERBS_GPU_peermem, true, "peer memory over fake0:1"},
        {"", STEPAF_ENV_VERBS_GPU_staged, true, "staged: fake0:1: STEPAF_VERBS_GPU=staged"},
        {"", STEPAF_ENV_VERBS_GPU_dmabuf, false, "STEPAF_VERBS_GPU=dmabuf: fake0:1: no dma-buf"},
        {"fake7", STEPAF_ENV_VERBS_GPU_auto, true, "there is no RDMA device"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stepaf_env env;
        begin("");
        CU_ASSERT_EQUAL_FATAL(stepaf_env_load(&env), STEPAF_OK);
        free(env.net_devices);
        env.net_devices = strdup(cases[i].net_devices);
        env.verbs_gpu = cases[i].gpu;
        cuda_fake.has_dmabuf = cases[i].dmabuf;
        CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
        stepaf_verbs_ops.probe_gpu(&env, gpu, text);
        UNIT_CONTAINS(text, cases[i].words);
        CU_ASSERT_EQUAL(verbs_device.n_open, 0);
        CU_ASSERT_EQUAL(cuda_fake_count(), 0);
        stepaf_gpu_close(gpu);
        CU_ASSERT_EQUAL(cuda_fake.n_held, 0);
        cuda_fake_end();
        stepaf_env_free(&env);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"dma-buf comes first", dmabuf_comes_first},
        {"peer memory is next", peer_memory_is_next},
        {"the rest is staged and the reason is told", the_rest_is_staged_and_the_reason_is_told},
        {"memory that cannot be flushed is staged", memory_that_cannot_be_flushed_is_staged},
        {"two ways are flushed by the card", two_ways_are_flushed_by_the_card},
        {"two ways without a read are staged", two_ways_without_a_read_are_staged},
        {"what was asked for is an error", what_was_asked_for_is_an_error},
        {"one rail that refuses is enough", one_rail_that_refuses_is_enough},
        {"small tensors are not inline", small_tensors_are_not_inline},
        {"it can be tried beforehand", it_can_be_tried_beforehand},
        {"a failing export is told", a_failing_export_is_told},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
