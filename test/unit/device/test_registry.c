/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of devices: what it says without any, whom it asks, and what it puts in the place of
 * operations that a device has not. */
#include <string.h>

#include "device/device.h"
#include "unit.h"

static int no_memory, there, opened, closed;

static bool probe_no(char *reason)
{
    strcpy(reason, "no such thing");
    return false;
}

static bool probe_nor(char *reason)
{
    strcpy(reason, "nor such");
    return false;
}

static bool probe_yes(char *reason)
{
    (void)reason;
    return true;
}

static stepaf_status_t open_no(struct stepaf_gpu **gpu_p)
{
    (void)gpu_p;
    return stepaf_error_set(no_memory ? STEPAF_ERR_NO_MEMORY : STEPAF_ERR_UNSUPPORTED,
                            STEPAF_PHASE_NONE, "no such thing");
}

static stepaf_status_t open_yes(struct stepaf_gpu **gpu_p)
{
    static struct stepaf_gpu gpu;

    gpu = (struct stepaf_gpu){.facts = {.name = "Toy"}};
    opened++;
    *gpu_p = &gpu;
    return STEPAF_OK;
}

static void close_it(struct stepaf_gpu *gpu)
{
    (void)gpu;
    closed++;
}

static void classify(const void *ptr, struct stepaf_gpu_place *place_p)
{
    place_p->is_device = ptr == &there;
}

static void classify_managed(const void *ptr, struct stepaf_gpu_place *place_p)
{
    place_p->managed = ptr == &opened;
}

/* Operations that are there, and not called. */
static stepaf_status_t alloc(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p)
{
    (void)gpu, (void)bytes;
    *ptr_p = &there;
    return STEPAF_OK;
}

static void drop(struct stepaf_gpu *gpu, void *ptr)
{
    (void)gpu, (void)ptr;
}

static stepaf_status_t pin(struct stepaf_gpu *gpu, void *ptr, size_t bytes, bool *own_p)
{
    (void)gpu, (void)ptr, (void)bytes, (void)own_p;
    return STEPAF_OK;
}

static stepaf_status_t put(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes)
{
    (void)gpu, (void)dst, (void)src, (void)bytes;
    return STEPAF_OK;
}

static stepaf_status_t launch(struct stepaf_gpu *gpu, enum stepaf_kernel kernel,
                              const struct stepaf_kernel_args *args, uint32_t blocks,
                              uint32_t threads, bool behind, void *stream)
{
    (void)gpu, (void)kernel, (void)args, (void)blocks, (void)threads, (void)behind, (void)stream;
    return STEPAF_OK;
}

static stepaf_status_t launch_any(struct stepaf_gpu *gpu, enum stepaf_any_kernel kernel,
                                  const struct stepaf_any_args *args, uint32_t blocks,
                                  uint32_t threads, bool behind, void *stream)
{
    (void)gpu, (void)kernel, (void)args, (void)blocks, (void)threads, (void)behind, (void)stream;
    return STEPAF_OK;
}

static stepaf_status_t copy(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes,
                            void *stream)
{
    (void)gpu, (void)dst, (void)src, (void)bytes, (void)stream;
    return STEPAF_OK;
}

static stepaf_status_t store(struct stepaf_gpu *gpu, const struct stepaf_gpu_word *words,
                             uint32_t n, void *stream)
{
    (void)gpu, (void)words, (void)n, (void)stream;
    return STEPAF_OK;
}

static stepaf_status_t create(struct stepaf_gpu *gpu, void **thing_p)
{
    (void)gpu, (void)thing_p;
    return STEPAF_OK;
}

static stepaf_status_t mark(struct stepaf_gpu *gpu, void *event, void *stream)
{
    (void)gpu, (void)event, (void)stream;
    return STEPAF_OK;
}

static stepaf_status_t ask(struct stepaf_gpu *gpu, void *thing)
{
    (void)gpu, (void)thing;
    return STEPAF_OK;
}

/* A device with no more than there has to be. */
static const struct stepaf_device_ops toy = {
    .name = "toy",
    .mem_kind = STEPAF_MEM_CUDA,
    .probe = probe_yes,
    .open = open_yes,
    .close = close_it,
    .classify = classify,
    .alloc = alloc,
    .free = drop,
    .alloc_host = alloc,
    .free_host = drop,
    .pin = pin,
    .unpin = drop,
    .write = put,
    .launch = launch,
    .launch_any = launch_any,
    .copy = copy,
    .store = store,
    .event_create = create,
    .event_destroy = drop,
    .event_record = mark,
    .event_await = mark,
    .event_test = ask,
    .stream_create = create,
    .stream_destroy = drop,
    .stream_sync = ask,
};

static void nothing_is_there_without_a_device(void)
{
    static const struct stepaf_device_ops *const none[] = {NULL};
    struct stepaf_gpu_place place = {.is_device = true};
    struct stepaf_gpu *gpu = NULL;
    struct stepaf_device_mem mem;
    char reason[STEPAF_REASON_MAX] = "";

    stepaf_devices = none;
    CU_ASSERT(!stepaf_gpu_probe(reason));
    UNIT_STRING(reason, "this build has no GPU support (CUDA)");
    CU_ASSERT(!stepaf_gpu_likely());
    CU_ASSERT_EQUAL(stepaf_gpu_open(&gpu), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "this build has no GPU support (CUDA)");
    CU_ASSERT_PTR_NULL(gpu);
    stepaf_gpu_classify(&there, &place);
    CU_ASSERT(!place.is_device && !place.managed);
    CU_ASSERT_EQUAL(stepaf_device_alloc(STEPAF_MEM_CUDA, NULL, 1, &mem), STEPAF_ERR_UNSUPPORTED);
}

static void the_first_that_can_be_used_is(void)
{
    struct stepaf_device_ops absent = toy, other = toy;
    const struct stepaf_device_ops *const devices[] = {&absent, &other, &toy, NULL};
    const struct stepaf_device_ops *const without[] = {&absent, &other, NULL};
    struct stepaf_gpu *gpu = NULL;
    char reason[STEPAF_REASON_MAX] = "";

    absent.name = "absent";
    absent.probe = probe_no;
    absent.open = open_no;
    other.name = "other";
    other.probe = probe_nor;
    other.open = open_no;
    stepaf_devices = without;
    CU_ASSERT(!stepaf_gpu_probe(reason));
    UNIT_STRING(reason, "no such thing; nor such");
    CU_ASSERT(!stepaf_gpu_likely());
    CU_ASSERT_EQUAL(stepaf_gpu_open(&gpu), STEPAF_ERR_UNSUPPORTED);
    UNIT_STRING(stepaf_last_error()->text, "no such thing");
    stepaf_devices = devices;
    CU_ASSERT(stepaf_gpu_probe(reason));
    CU_ASSERT(stepaf_gpu_likely());
    no_memory = 1; /* is no reason to take another device */
    CU_ASSERT_EQUAL(stepaf_gpu_open(&gpu), STEPAF_ERR_NO_MEMORY);
    CU_ASSERT(!gpu && !opened);
    no_memory = 0;
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
    UNIT_STRING(gpu->ops.name, "toy");
    UNIT_STRING(stepaf_gpu_facts(gpu)->name, "Toy");
    stepaf_gpu_close(gpu);
    stepaf_gpu_close(NULL);
    CU_ASSERT(opened == 1 && closed == 1);
}

static void memory_is_whose_it_is(void)
{
    struct stepaf_device_ops managing = toy;
    const struct stepaf_device_ops *const devices[] = {&managing, &toy, NULL};
    struct stepaf_gpu_place place;
    struct stepaf_gpu *gpu = NULL;
    int host;

    managing.name = "managing";
    managing.classify = classify_managed;
    managing.open = open_no;
    stepaf_devices = devices;
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
    stepaf_gpu_classify(&there, &place);
    CU_ASSERT(place.is_device && stepaf_gpu_owns(gpu, &place));
    place.ordinal = 1;
    CU_ASSERT(!stepaf_gpu_owns(gpu, &place));
    stepaf_gpu_classify(&opened, &place);
    CU_ASSERT(place.managed && !place.is_device && !stepaf_gpu_owns(gpu, &place));
    stepaf_gpu_classify(&host, &place);
    CU_ASSERT(!place.managed && !place.is_device);
    struct stepaf_device_mem mem = {0};
    CU_ASSERT_EQUAL(stepaf_device_alloc(STEPAF_MEM_CUDA, gpu, 4, &mem), STEPAF_OK);
    CU_ASSERT(mem.base == &there && mem.gpu == gpu && mem.kind == STEPAF_MEM_CUDA);
    stepaf_device_free(&mem);
    CU_ASSERT_EQUAL(stepaf_device_alloc(77, gpu, 4, &mem), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "unknown kind of memory 77");
    stepaf_gpu_close(gpu);
}

static void note_call(void *arg)
{
    *(bool *)arg = true;
}

static void what_a_device_has_not_is_said_in_its_place(void)
{
    static const struct stepaf_device_ops *const devices[] = {&toy, NULL};
    struct stepaf_gpu_export exported = {0};
    struct stepaf_gpu *gpu = NULL;
    uint64_t offset;
    void *ptr = NULL;
    bool capturing = true, called = false;
    int fd;

    stepaf_devices = devices;
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_gpu_export(gpu, &there, &exported), STEPAF_ERR_UNSUPPORTED);
    UNIT_STRING(stepaf_last_error()->text,
                "Toy (device toy) shares no memory with other processes");
    CU_ASSERT_EQUAL(stepaf_gpu_import(gpu, &exported, &ptr), STEPAF_ERR_UNSUPPORTED);
    stepaf_gpu_unimport(gpu, ptr);
    CU_ASSERT(stepaf_gpu_rdma(gpu)->no_dmabuf[0] && stepaf_gpu_rdma(gpu)->no_peermem[0]);
    CU_ASSERT(!stepaf_gpu_rdma(gpu)->flush);
    CU_ASSERT_EQUAL(stepaf_gpu_dmabuf(gpu, &there, 4, false, &fd, &offset), STEPAF_ERR_UNSUPPORTED);
    CU_ASSERT_EQUAL(stepaf_gpu_sync_memops(gpu, &there), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_gpu_flush(gpu), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_gpu_inside(gpu, note_call, &called), STEPAF_OK);
    CU_ASSERT_TRUE(called);
    CU_ASSERT_EQUAL(stepaf_gpu_capturing(gpu, &there, &capturing), STEPAF_OK);
    CU_ASSERT(!capturing);
    stepaf_gpu_close(gpu);
}

static void what_has_to_be_there_is_asked_for(void)
{
    struct stepaf_device_ops lame;
    const struct stepaf_device_ops *const devices[] = {&lame, NULL};
    const size_t first = offsetof(struct stepaf_device_ops, probe);
    struct stepaf_gpu *gpu = NULL;
    int n_refused = 0, n_optional = 0, before = opened;

    stepaf_devices = devices;
    for (size_t at = first; at < sizeof(toy); at += sizeof(void (*)(void))) {
        lame = toy;
        if (memcmp((char *)&lame + at, (const char[sizeof(void *)]){0}, sizeof(void *)) == 0) {
            n_optional++;
            continue;
        }
        memset((char *)&lame + at, 0, sizeof(void *));
        CU_ASSERT_EQUAL(stepaf_gpu_open(&gpu), STEPAF_ERR_UNSUPPORTED);
        UNIT_CONTAINS(stepaf_last_error()->text, "the device toy lacks an operation: ");
        n_refused++;
    }
    CU_ASSERT(n_refused == 23 && n_optional == 12);
    CU_ASSERT_EQUAL(opened, before);
    lame = toy;
    lame.unimport = drop; /* of three that belong together */
    CU_ASSERT_EQUAL(stepaf_gpu_open(&gpu), STEPAF_ERR_UNSUPPORTED);
    UNIT_CONTAINS(stepaf_last_error()->text, "export, import and unimport");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nothing is there without a device", nothing_is_there_without_a_device},
        {"the first that can be used is", the_first_that_can_be_used_is},
        {"memory is whose it is", memory_is_whose_it_is},
        {"what a device has not is said in its place", what_a_device_has_not_is_said_in_its_place},
        {"what has to be there is asked for", what_has_to_be_there_is_asked_for},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
