/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_case.h"

#include "device/cuda_fake.h"
#include "ucx_fabric.h"
#include "ucx_gpu.h"
#include "unit.h"

struct stepaf_gpu *gpu_case;

static bool is_inside(void)
{
    return cuda_fake_thread.depth > 0;
}

void gpu_case_begin(const char *setting)
{
    static const char *settings[] = {"STEPAF_TRANSPORTS", "ucx", "STEPAF_UCX_GPU", NULL, NULL};

    cuda_fake_begin();
    cuda_fake.has_dmabuf = true;
    cuda_fake.flush_options = CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
    ucx_fabric_reset(91);
    ucx_fabric.minor = 18;
    ucx_gpu.has_cuda = true;
    ucx_gpu.is_inside = is_inside;
    settings[3] = setting;
    side_settings = settings;
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu_case), STEPAF_OK);
}

void gpu_case_end(void)
{
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_foreign, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
    CU_ASSERT_EQUAL(ucx_gpu.n_mapped, 0);
    CU_ASSERT_EQUAL(ucx_gpu.n_outside, 0);
    stepaf_gpu_close(gpu_case);
    CU_ASSERT_EQUAL(cuda_fake.n_held, 0);
    CU_ASSERT_EQUAL(cuda_fake_thread.depth, 0);
    cuda_fake_end();
    ucx_gpu_end();
    side_settings = NULL;
}
