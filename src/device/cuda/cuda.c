/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU: find out whether there is one, and open it with its kernels. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "device/cuda/cuda.h"
#include "device/cuda/driver.h"

_Static_assert(sizeof(struct stepaf_kernel_args) <= 4096,
               "what all drivers take as kernel parameters");
_Static_assert(sizeof(CUuuid) == STEPAF_GPU_UUID, "plain bytes");

static const char *const kernel_names[STEPAF_KERNEL_COUNT] = {
    [STEPAF_KERNEL_SEND] = "stepaf_send",
    [STEPAF_KERNEL_GATE] = "stepaf_gate",
    [STEPAF_KERNEL_UNPACK] = "stepaf_unpack",
    [STEPAF_KERNEL_SEND_CHUNKS] = "stepaf_send_chunks",
    [STEPAF_KERNEL_UNPACK_CHUNKS] = "stepaf_unpack_chunks",
    [STEPAF_KERNEL_SEND_SOME] = "stepaf_send_some",
    [STEPAF_KERNEL_GATE_SOME] = "stepaf_gate_some",
    [STEPAF_KERNEL_UNPACK_SOME] = "stepaf_unpack_some",
    [STEPAF_KERNEL_SEND_SOME_CHUNKS] = "stepaf_send_some_chunks",
    [STEPAF_KERNEL_UNPACK_SOME_CHUNKS] = "stepaf_unpack_some_chunks",
    [STEPAF_KERNEL_SETTLE] = "stepaf_settle",
};
static const char *const few_names[STEPAF_KERNEL_COUNT] = {
    [STEPAF_KERNEL_SEND] = "stepaf_send_few",
    [STEPAF_KERNEL_GATE] = "stepaf_gate_few",
    [STEPAF_KERNEL_UNPACK] = "stepaf_unpack_few",
    [STEPAF_KERNEL_SEND_CHUNKS] = "stepaf_send_chunks_few",
    [STEPAF_KERNEL_UNPACK_CHUNKS] = "stepaf_unpack_chunks_few",
    [STEPAF_KERNEL_SEND_SOME] = "stepaf_send_some_few",
    [STEPAF_KERNEL_GATE_SOME] = "stepaf_gate_some_few",
    [STEPAF_KERNEL_UNPACK_SOME] = "stepaf_unpack_some_few",
    [STEPAF_KERNEL_SEND_SOME_CHUNKS] = "stepaf_send_some_chunks_few",
    [STEPAF_KERNEL_UNPACK_SOME_CHUNKS] = "stepaf_unpack_some_chunks_few",
    [STEPAF_KERNEL_SETTLE] = "stepaf_settle_few",
};
static const char *const any_names[STEPAF_ANY_KERNEL_COUNT] = {
    [STEPAF_KERNEL_SEND_ANY] = "stepaf_send_any",
    [STEPAF_KERNEL_GATE_ANY] = "stepaf_gate_any",
    [STEPAF_KERNEL_UNPACK_ANY] = "stepaf_unpack_any",
    [STEPAF_KERNEL_SEND_ANY_CHUNKS] = "stepaf_send_any_chunks",
    [STEPAF_KERNEL_UNPACK_ANY_CHUNKS] = "stepaf_unpack_any_chunks",
};
static const char *const times_names[STEPAF_TIMES_KERNEL_COUNT] = {
    [STEPAF_KERNEL_TIMESTAMP] = "stepaf_take_time",
    [STEPAF_KERNEL_ARRIVALS] = "stepaf_arrivals",
};

/* Return the driver, if it shows a GPU; otherwise NULL, with the reason. */
static const struct stepaf_cuda_driver *find_driver(char *reason)
{
    const struct stepaf_cuda_driver *cuda = stepaf_cuda_driver(reason);
    int n = 0;

    if (!cuda || (cuda->device_count(&n) == CUDA_SUCCESS && n > 0))
        return cuda;
    snprintf(reason, STEPAF_REASON_MAX, "the CUDA driver reports no GPU");
    return NULL;
}

static bool cuda_probe(char *reason)
{
    return find_driver(reason) != NULL;
}

/* Return whether there is a device file, which the driver needs, of any kind of machine. */
static bool has_device_file(void)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu",
                                        "/dev/nvgpu/igpu0"};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (!access(files[i], F_OK))
            return true;
    return false;
}

static bool cuda_likely(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"); /* CUDA's own; read as the driver does */

    if (stepaf_cuda_driver_fake)
        return true;
    return has_device_file() && (!visible || (visible[0] && strcmp(visible, "-1") != 0));
}

/* Find the device that is current to this thread, or the first. A context that is not the device's
 * primary one (a green context, or a program's own) still names the device. */
static stepaf_status_t find_device(struct stepaf_cuda_gpu *gpu)
{
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    CUcontext current = NULL;

    if (cuda->ctx_current(&current) == CUDA_SUCCESS && current)
        return stepaf_cuda_check(cuda, cuda->ctx_device(&gpu->device),
                                 "cannot query the current GPU");
    return stepaf_cuda_check(cuda, cuda->device_get(&gpu->device, 0), "cannot use GPU 0");
}

static stepaf_status_t read_facts(struct stepaf_cuda_gpu *gpu)
{
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    struct stepaf_gpu_facts *facts = &gpu->base.facts;
    CUuuid uuid;
    int n_sms = 0, major = 0;
    CUresult result = cuda->device_name(facts->name, sizeof(facts->name), gpu->device);

    facts->ordinal = gpu->device;
    if (!result)
        result = cuda->device_uuid(&uuid, gpu->device);
    if (!result)
        result = cuda->device_bus(facts->bus, sizeof(facts->bus), gpu->device);
    if (!result)
        result =
            cuda->device_attribute(&n_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu->device);
    if (!result)
        result = cuda->device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                        gpu->device);
    if (result)
        return stepaf_cuda_check(cuda, result, "cannot query GPU %d", gpu->device);
    memcpy(facts->uuid, uuid.bytes, sizeof(facts->uuid));
    for (char *c = facts->bus; *c; c++) /* as the kernel spells it in /sys */
        *c = (char)tolower((unsigned char)*c);
    facts->n_sms = (uint32_t)n_sms;
    gpu->chains = major >= 9;
    return STEPAF_OK;
}

/* Load one kernel now. A driver that loads a kernel at its first launch then waits for the GPU, on
 * which a stream may be waiting for a peer. */
static stepaf_status_t load_kernel(struct stepaf_cuda_gpu *gpu, const char *name,
                                   CUfunction *kernel_p)
{
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    int registers = 0, spilled = 0;
    CUresult result = cuda->module_function(kernel_p, gpu->module, name);

    if (!result && cuda->function_load)
        result = cuda->function_load(*kernel_p);
    if (!result)
        result = cuda->function_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, *kernel_p);
    if (!result)
        result = cuda->function_attribute(&spilled, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, *kernel_p);
    if (!result)
        stepaf_log_debug("kernel %s: %d registers, %d bytes of local memory", name, registers,
                         spilled);
    return stepaf_cuda_check(cuda, result, "cannot load the kernel %s on GPU %d", name,
                             gpu->base.facts.ordinal);
}

static stepaf_status_t load_kernels(struct stepaf_cuda_gpu *gpu)
{
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    stepaf_status_t status = stepaf_cuda_check(
        cuda, cuda->module_load(&gpu->module, stepaf_kernels_image, 0, NULL, NULL),
        "cannot load the kernels on GPU %d", gpu->base.facts.ordinal);

    for (unsigned k = 0; k < STEPAF_KERNEL_COUNT && !status; k++) {
        status = load_kernel(gpu, kernel_names[k], &gpu->kernels[k]);
        if (!status)
            status = load_kernel(gpu, few_names[k], &gpu->few[k]);
    }
    for (unsigned k = 0; k < STEPAF_ANY_KERNEL_COUNT && !status; k++)
        status = load_kernel(gpu, any_names[k], &gpu->any[k]);
    for (unsigned k = 0; k < STEPAF_TIMES_KERNEL_COUNT && !status; k++)
        status = load_kernel(gpu, times_names[k], &gpu->times[k]);
    return status ? status : load_kernel(gpu, "stepaf_tell_time", &gpu->tell_time);
}

/* Set up everything that needs the context: all or nothing. */
static stepaf_status_t set_up_gpu(struct stepaf_cuda_gpu *gpu)
{
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    struct stepaf_cuda_scope scope;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    status = load_kernels(gpu);
    if (!status)
        status = stepaf_cuda_check(cuda, cuda->stream_create(&gpu->stream, CU_STREAM_NON_BLOCKING),
                                   "cannot create a stream on GPU %d", gpu->base.facts.ordinal);
    if (status && gpu->module)
        (void)cuda->module_unload(gpu->module);
    stepaf_cuda_leave(gpu, &scope);
    return status;
}

static stepaf_status_t cuda_open(struct stepaf_gpu **gpu_p)
{
    char reason[STEPAF_REASON_MAX];
    const struct stepaf_cuda_driver *cuda = find_driver(reason);
    stepaf_status_t status;

    if (!cuda)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE, "no GPU: %s", reason);
    struct stepaf_cuda_gpu *gpu = calloc(1, sizeof(*gpu));
    if (!gpu)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    stepaf_list_init(&gpu->mappings);
    gpu->cuda = cuda;
    status = find_device(gpu);
    if (!status)
        status = read_facts(gpu);
    if (status)
        goto err_free;
    status = stepaf_cuda_check(gpu->cuda, gpu->cuda->primary_retain(&gpu->context, gpu->device),
                               "cannot make a context on GPU %d", gpu->base.facts.ordinal);
    if (status)
        goto err_free;
    status = set_up_gpu(gpu);
    if (status)
        goto err_release;
    stepaf_log_info("GPU %d: %s at %s, %u multiprocessors", gpu->base.facts.ordinal,
                    gpu->base.facts.name, gpu->base.facts.bus, gpu->base.facts.n_sms);
    *gpu_p = &gpu->base;
    return STEPAF_OK;

err_release:
    (void)gpu->cuda->primary_release(gpu->device);
err_free:
    free(gpu);
    return status;
}

static void cuda_close(struct stepaf_gpu *self)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct stepaf_cuda_scope scope;

    stepaf_cuda_unmap_all(gpu);
    if (!stepaf_cuda_enter_setup(gpu, &scope)) {
        (void)gpu->cuda->stream_destroy(gpu->stream);
        (void)gpu->cuda->module_unload(gpu->module);
        stepaf_cuda_leave(gpu, &scope);
    }
    (void)gpu->cuda->primary_release(gpu->device);
    free(gpu);
}

const struct stepaf_device_ops stepaf_cuda_ops = {
    .name = "cuda",
    .mem_kind = STEPAF_MEM_CUDA,
    .probe = cuda_probe,
    .likely = cuda_likely,
    .open = cuda_open,
    .close = cuda_close,
    .classify = stepaf_cuda_classify,
    .alloc = stepaf_cuda_alloc,
    .free = stepaf_cuda_free,
    .alloc_host = stepaf_cuda_alloc_host,
    .free_host = stepaf_cuda_free_host,
    .pin = stepaf_cuda_pin,
    .unpin = stepaf_cuda_unpin,
    .write = stepaf_cuda_write,
    .export = stepaf_cuda_export,
    .import = stepaf_cuda_import,
    .unimport = stepaf_cuda_unimport,
    .rdma = stepaf_cuda_rdma,
    .dmabuf = stepaf_cuda_dmabuf,
    .sync_memops = stepaf_cuda_sync_memops,
    .inside = stepaf_cuda_inside,
    .flush = stepaf_cuda_flush,
    .capturing = stepaf_cuda_capturing,
    .launch = stepaf_cuda_launch,
    .launch_any = stepaf_cuda_launch_any,
    .copy = stepaf_cuda_copy,
    .store = stepaf_cuda_store,
    .timestamp = stepaf_cuda_timestamp,
    .tell_time = stepaf_cuda_tell_time,
    .event_create = stepaf_cuda_event_create,
    .event_destroy = stepaf_cuda_event_destroy,
    .event_record = stepaf_cuda_event_record,
    .event_await = stepaf_cuda_event_await,
    .event_test = stepaf_cuda_event_test,
    .stream_create = stepaf_cuda_stream_create,
    .stream_destroy = stepaf_cuda_stream_destroy,
    .stream_sync = stepaf_cuda_stream_sync,
};
