/* SPDX-License-Identifier: Apache-2.0 */
/* What the core makes of a device's memory, of a device that fails, and of host memory for it. */
#include "core/region.h"
#include "cpu_device/cpu_device.h"
#include "fake.h"
#include "unit.h"

static void regions_know_their_memory(void)
{
    struct fake_job *job;
    struct cpu_piece *own, *far, *pooled;
    void *allocated;

    cpu_device_begin();
    job = fake_open(STEPAF_ATTENTION, 1, 1);
    own = cpu_device_piece(4096, 0, true);
    far = cpu_device_piece(4096, 1, true);
    pooled = cpu_device_piece(4096, 0, false);
    CU_ASSERT_EQUAL(stepaf_register(job->handle, own->base, 4096), STEPAF_OK);
    const struct stepaf_region *region = stepaf_region_find(job->ctx, own->base, 4096);
    CU_ASSERT(region && region->mem.kind == STEPAF_MEM_CUDA && region->shareable);
    CU_ASSERT_PTR_NULL(stepaf_region_find_host(job->ctx, own->base, 4096));
    CU_ASSERT_EQUAL(stepaf_register(job->handle, far->base, 4096), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "of GPU 1, but this context uses GPU 0");
    CU_ASSERT_EQUAL(stepaf_register(job->handle, pooled->base, 4096), STEPAF_OK);
    region = stepaf_region_find(job->ctx, pooled->base, 4096);
    CU_ASSERT(region && region->mem.kind == STEPAF_MEM_CUDA && !region->shareable);
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, pooled->base), STEPAF_OK);
    pooled->managed = true;
    CU_ASSERT_EQUAL(stepaf_register(job->handle, pooled->base, 4096), STEPAF_ERR_UNSUPPORTED);
    int n = cpu_device_count();
    CU_ASSERT_EQUAL(stepaf_alloc(job->handle, 100, STEPAF_MEM_CUDA, &allocated), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device_count(), n + 1);
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, allocated), STEPAF_ERR_UNREGISTERED);
    CU_ASSERT_EQUAL(stepaf_free(job->handle, allocated), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device_count(), n);
    fake_close(job);
    CU_ASSERT_EQUAL(cpu_device.n_held, 0);
    cpu_device_end();
}

static void a_gpu_that_fails_changes_nothing(void)
{
    struct fake_job *job;
    void *ptr = NULL;

    cpu_device_begin();
    job = fake_open(STEPAF_ATTENTION, 1, 1);
    cpu_device.fail_at = 1;
    CU_ASSERT_EQUAL(stepaf_alloc(job->handle, 100, STEPAF_MEM_CUDA, &ptr), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
    CU_ASSERT(!ptr && !job->ctx->memory.n_regions && !job->ctx->gpu.device);
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(stepaf_alloc(job->handle, 100, STEPAF_MEM_CUDA, &ptr), STEPAF_OK);
    fake_close(job);
    CU_ASSERT_EQUAL(cpu_device.n_held, 0);
    CU_ASSERT_EQUAL(cpu_device_count(), 0);
    cpu_device_end();
}

/* An attention rank with a tensor to push, from host memory, and one to pull, into memory of this
 * kind. */
static struct fake_job *open_with_tensors(stepaf_tensor_t *push, stepaf_tensor_t *pull,
                                          stepaf_mem_kind_t kind)
{
    struct fake_job *job;

    *push = (stepaf_tensor_t){.key = 1, .bytes = 64};
    *pull = (stepaf_tensor_t){.key = 2, .bytes = 64};
    cpu_device_begin();
    job = fake_open(STEPAF_ATTENTION, 1, 1);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 64, STEPAF_MEM_HOST, &push->data), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 64, kind, &pull->data), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(job->handle, 1, STEPAF_PUSH, 64, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(job->handle, 2, STEPAF_PULL, 64, NULL), STEPAF_OK);
    return job;
}

/* A stream plan pins what it names in host memory, once; what cannot be pinned is refused. */
static void plans_on_streams_pin_host_memory(void)
{
    stepaf_tensor_t push, pull;
    struct fake_job *job = open_with_tensors(&push, &pull, STEPAF_MEM_CUDA);
    stepaf_plan_h plan = NULL, other = NULL;

    /* The destination is not of the key's kind. */
    CU_ASSERT_EQUAL(stepaf_plan_create(job->handle, &push, 1, &pull, 1, STEPAF_PLAN_STREAM, &plan),
                    STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "is in GPU memory, but key 2 is declared for host");
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 64, STEPAF_MEM_HOST, &pull.data), STEPAF_OK);
    int n_held = cpu_device.n_held; /* the source is pinned already */
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 1;
    CU_ASSERT_EQUAL(stepaf_plan_create(job->handle, &push, 1, &pull, 1, STEPAF_PLAN_STREAM, &plan),
                    STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "host memory that the GPU cannot use");
    UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(cpu_device.n_held, n_held);
    CU_ASSERT_EQUAL(stepaf_plan_create(job->handle, &push, 1, &pull, 1, STEPAF_PLAN_STREAM, &plan),
                    STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.n_held, n_held + 1);
    CU_ASSERT_EQUAL(stepaf_plan_create(job->handle, &push, 1, &pull, 1, STEPAF_PLAN_STREAM, &other),
                    STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.n_held, n_held + 1);
    fake_close(job);
    CU_ASSERT_EQUAL(cpu_device.n_held, 0);
    cpu_device_end();
}

/* By a transport, say, that is closed when nobody is reached by it. */
static void memory_stays_pinned_when_others_unpin_it(void)
{
    stepaf_tensor_t push, pull;
    struct fake_job *job = open_with_tensors(&push, &pull, STEPAF_MEM_HOST);
    stepaf_plan_h plan = NULL;

    cpu_device.pinned_already = true;
    CU_ASSERT_EQUAL(stepaf_plan_create(job->handle, &push, 1, &pull, 1, STEPAF_PLAN_STREAM, &plan),
                    STEPAF_OK);
    int n_held = cpu_device.n_held;
    CU_ASSERT_EQUAL(stepaf_regions_pin_again(job->ctx), STEPAF_OK); /* it still is */
    CU_ASSERT_EQUAL(cpu_device.n_held, n_held);
    cpu_device.pinned_already = false;
    cpu_device.n_calls = 0;
    cpu_device.fail_at = 1;
    CU_ASSERT(stepaf_regions_pin_again(job->ctx) < STEPAF_OK);
    UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
    cpu_device.fail_at = 0;
    CU_ASSERT_EQUAL(stepaf_regions_pin_again(job->ctx), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.n_held, n_held + 2);
    CU_ASSERT_EQUAL(stepaf_regions_pin_again(job->ctx), STEPAF_OK);
    CU_ASSERT_EQUAL(cpu_device.n_held, n_held + 2);
    fake_close(job);
    CU_ASSERT_EQUAL(cpu_device.n_held, 0);
    cpu_device_end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"regions know their memory", regions_know_their_memory},
        {"a GPU that fails changes nothing", a_gpu_that_fails_changes_nothing},
        {"plans on streams pin host memory", plans_on_streams_pin_host_memory},
        {"memory stays pinned when others unpin it", memory_stays_pinned_when_others_unpin_it},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
