/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU says of network cards, through a driver that is made up. */
#include <fcntl.h>
#include <unistd.h>

#include "cuda_fake.h"
#include "unit.h"

static struct stepaf_gpu *gpu;

static void begin(void)
{
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
}

static void end(void)
{
    stepaf_gpu_close(gpu);
    CU_ASSERT_EQUAL(cuda_fake.n_held, 0);
    CU_ASSERT_EQUAL(cuda_fake_thread.depth, 0);
    CU_ASSERT_EQUAL(cuda_fake_thread.mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuda_fake_end();
}

static void what_is_missing_is_named(void)
{
    cuda_fake_begin();
    begin();
    const struct stepaf_gpu_rdma *rdma = stepaf_gpu_rdma(gpu);
    UNIT_CONTAINS(rdma->no_dmabuf, "GPU 0 exports no memory as dma-buf");
    UNIT_CONTAINS(rdma->no_peermem, "GPU 0 offers no GPUDirect RDMA");
    CU_ASSERT(rdma->flush);
    UNIT_CONTAINS(rdma->no_flush, "cannot flush");
    end();
}

static void an_older_driver_is_named(void)
{
    cuda_fake_begin();
    cuda_fake.has_dmabuf = cuda_fake.has_rdma = true;
    cuda_fake.flush_options = CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
    cuda_fake_grow_old();
    begin();
    const struct stepaf_gpu_rdma *rdma = stepaf_gpu_rdma(gpu);
    UNIT_CONTAINS(rdma->no_dmabuf, "cuMemGetHandleForAddressRange");
    UNIT_STRING(rdma->no_peermem, "");
    UNIT_CONTAINS(rdma->no_flush, "cannot flush");
    uint64_t offset = 7;
    int fd = -7;
    CU_ASSERT_EQUAL(stepaf_gpu_dmabuf(gpu, gpu, 8, false, &fd, &offset), STEPAF_ERR_UNSUPPORTED);
    CU_ASSERT(fd == -7 && offset == 7);
    end();
}

/* Flushing is asked for below OWNER; where it is not, it need not be possible. */
static void ordering_decides_on_flushing(void)
{
    static const struct {
        int ordering, options;
        bool flush, possible;
    } cases[] = {
        {CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE, 0, true, false},
        {CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_MEMOPS,
         true, false},
        {CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, true,
         true},
        {CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER, 0, false, true},
        {CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES, 0, false, true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cuda_fake_begin();
        cuda_fake.ordering = cases[i].ordering;
        cuda_fake.flush_options = cases[i].options;
        begin();
        const struct stepaf_gpu_rdma *rdma = stepaf_gpu_rdma(gpu);
        CU_ASSERT_EQUAL(rdma->flush, cases[i].flush);
        CU_ASSERT_EQUAL(rdma->no_flush[0] == '\0', cases[i].possible);
        end();
    }
}

/* Where the GPU reads the host's page tables it has two ways to its memory: the driver says that
 * all is ordered, which is not so of both. */
static void two_ways_are_flushed_by_a_read(void)
{
    uint64_t offset = 7;
    int fd = -7;

    for (int two = 0; two < 2; two++) {
        cuda_fake_begin();
        cuda_fake.two_ways = two;
        cuda_fake.has_dmabuf = true;
        cuda_fake.ordering = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES;
        begin();
        const struct stepaf_gpu_rdma *rdma = stepaf_gpu_rdma(gpu);
        CU_ASSERT_EQUAL(rdma->two_ways, two);
        CU_ASSERT_EQUAL(rdma->flush, two);
        UNIT_STRING(rdma->no_flush, "");
        void *base = cuda_fake_piece(4096, 0, true)->base;
        cuda_fake.knows_pcie = two;
        stepaf_status_t status = stepaf_gpu_dmabuf(gpu, base, 4096, true, &fd, &offset);
        CU_ASSERT_EQUAL(status, two ? STEPAF_OK : STEPAF_ERR_UNSUPPORTED);
        CU_ASSERT_EQUAL(cuda_fake.last_flags, STEPAF_CUDA_DMABUF_BY_PCIE);
        if (two)
            close(fd);
        else
            CU_ASSERT(fd == -7 && offset == 7);
        CU_ASSERT_EQUAL_FATAL(stepaf_gpu_dmabuf(gpu, base, 4096, false, &fd, &offset), STEPAF_OK);
        CU_ASSERT_EQUAL(cuda_fake.last_flags, 0);
        close(fd);
        fd = -7;
        offset = 7;
        end();
    }
}

/* Whatever the place, whole pages are exported, and the offset says where the piece begins. */
static void pieces_are_exported_by_pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t offset;
    int fd;

    cuda_fake_begin();
    cuda_fake.has_dmabuf = true;
    begin();
    uint8_t *base = cuda_fake_piece(4 * page, 0, true)->base;
    for (size_t at = 0; at < page; at += 511) {
        CU_ASSERT_EQUAL_FATAL(stepaf_gpu_dmabuf(gpu, base + at, page, false, &fd, &offset),
                              STEPAF_OK);
        CU_ASSERT_EQUAL(offset, (uintptr_t)(base + at) % page);
        CU_ASSERT_EQUAL(close(fd), 0);
    }
    end();
}

/* Let the n-th call fail, until none does; return how many did. */
static int fail_each(bool (*what)(void))
{
    int n = 0;

    for (bool good = false; !good; n++) {
        cuda_fake.n_calls = 0;
        cuda_fake.fail_at = n + 1;
        good = what();
        CU_ASSERT_EQUAL(cuda_fake_thread.depth, 0);
        CU_ASSERT_EQUAL(cuda_fake_thread.mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
        if (!good)
            UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
    }
    cuda_fake.fail_at = 0;
    return n - 1;
}

static bool do_export(void)
{
    static uint8_t memory[4096];
    uint64_t offset;
    int fd = -7;
    bool good = !stepaf_gpu_dmabuf(gpu, memory, 100, false, &fd, &offset);

    CU_ASSERT_EQUAL(good, fd != -7);
    if (good)
        close(fd);
    return good;
}

static bool do_flush(void)
{
    return !stepaf_gpu_flush(gpu);
}

static bool do_sync(void)
{
    return !stepaf_gpu_sync_memops(gpu, gpu);
}

static void note_depth(void *arg)
{
    *(int *)arg = cuda_fake_thread.depth;
}

/* What is called finds the GPU's context, which does not stay. */
static bool do_inside(void)
{
    int depth = 0;
    bool good = !stepaf_gpu_inside(gpu, note_depth, &depth);

    CU_ASSERT_EQUAL(depth, good);
    CU_ASSERT_EQUAL(cuda_fake_thread.depth, 0);
    return good;
}

static bool do_pin(void)
{
    static uint8_t memory[4096];
    int n_held = cuda_fake.n_held;
    bool own = false;

    if (stepaf_gpu_pin(gpu, memory, sizeof(memory), &own)) {
        CU_ASSERT_EQUAL(cuda_fake.n_held, n_held);
        return false;
    }
    CU_ASSERT(own);
    cuda_fake.fail_at = 0;
    stepaf_gpu_unpin(gpu, memory);
    return true;
}

static void each_failure_is_told_and_leaves_nothing(void)
{
    cuda_fake_begin();
    cuda_fake.has_dmabuf = true;
    begin();
    (void)stepaf_gpu_rdma(gpu);
    CU_ASSERT_EQUAL(fail_each(do_export), 2);
    CU_ASSERT_EQUAL(fail_each(do_flush), 2);
    CU_ASSERT_EQUAL(fail_each(do_sync), 2);
    CU_ASSERT_EQUAL(fail_each(do_inside), 1);
    CU_ASSERT_EQUAL(fail_each(do_pin), 3);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is missing is named", what_is_missing_is_named},
        {"an older driver is named", an_older_driver_is_named},
        {"ordering decides on flushing", ordering_decides_on_flushing},
        {"two ways are flushed by a read", two_ways_are_flushed_by_a_read},
        {"pieces are exported by pages", pieces_are_exported_by_pages},
        {"each failure is told and leaves nothing", each_failure_is_told_and_leaves_nothing},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
