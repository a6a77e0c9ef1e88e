/* SPDX-License-Identifier: Apache-2.0 */
/* The device of the other tests does what device_ops.h says: memory, between processes too, streams
 * and events. What is asked of it here can be asked of any. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "device/gpu.h"
#include "unit.h"

enum { BYTES = 10000, SYNC_MS = 20000 };

static struct stepaf_gpu *gpu;

static void begin(void)
{
    cpu_device_begin();
    cpu_device.runs = true;
    cpu_queue_begin();
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
}

static void end(void)
{
    cpu_queue_end();
    stepaf_gpu_close(gpu);
    CU_ASSERT_EQUAL(cpu_device.n_held, 0);
    CU_ASSERT_EQUAL(cpu_device_count(), 0);
    cpu_device_end();
}

static uint8_t *allocate(void)
{
    void *ptr = NULL;

    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_alloc(gpu, BYTES, &ptr), STEPAF_OK);
    return ptr;
}

static void memory_is_the_devices(void)
{
    struct stepaf_gpu_place place;
    uint8_t *ptr, bytes[BYTES];

    begin();
    ptr = allocate();
    CU_ASSERT_EQUAL((uintptr_t)ptr % 512, 0);
    CU_ASSERT(ptr[0] == 0 && ptr[BYTES - 1] == 0);
    stepaf_gpu_classify(ptr + BYTES - 1, &place);
    CU_ASSERT(place.is_device && place.shareable && stepaf_gpu_owns(gpu, &place));
    CU_ASSERT(place.base == ptr && place.bytes == BYTES);
    stepaf_gpu_classify(bytes, &place);
    CU_ASSERT(!place.is_device && !place.managed);
    memset(bytes, 7, sizeof bytes);
    CU_ASSERT_EQUAL(stepaf_gpu_write(gpu, ptr, bytes, BYTES), STEPAF_OK);
    CU_ASSERT(ptr[0] == 7 && ptr[BYTES - 1] == 7);
    stepaf_gpu_free(gpu, ptr);
    stepaf_gpu_free(gpu, NULL);
    end();
}

/* What another process does with what was exported: 0, or which step was wrong. */
static int use_exported(const struct stepaf_gpu_export *exported)
{
    struct stepaf_gpu_export lie = *exported;
    int before = cpu_device_count();
    struct stepaf_gpu *its = NULL;
    uint8_t *one, *other;
    void *none = NULL;

    if (stepaf_gpu_open(&its) || stepaf_gpu_import(its, exported, (void **)&one))
        return 1;
    if (one[0] != 5 || stepaf_gpu_import(its, exported, (void **)&other) || other != one)
        return 2;
    one[0] = 6;
    lie.bytes++;
    if (stepaf_gpu_import(its, &lie, &none) != STEPAF_ERR_PROTOCOL || none)
        return 3;
    lie.offset = UINT64_MAX;
    if (stepaf_gpu_import(its, &lie, &none) != STEPAF_ERR_PROTOCOL || none)
        return 4;
    stepaf_gpu_unimport(its, other);
    if (cpu_device_count() != before + 1 || one[0] != 6)
        return 5;
    stepaf_gpu_unimport(its, one);
    if (cpu_device_count() != before)
        return 6;
    if (stepaf_gpu_import(its, exported, (void **)&one))
        return 7;
    stepaf_gpu_close(its); /* with what is imported still */
    return cpu_device_count() == before ? 0 : 8;
}

static void memory_is_shared_between_processes(void)
{
    struct stepaf_gpu_export exported;
    void *mine = NULL;
    uint8_t *ptr;
    int status = -1;

    begin();
    ptr = allocate();
    ptr[100] = 5;
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_export(gpu, ptr + 100, &exported), STEPAF_OK);
    CU_ASSERT(exported.offset == 100 && exported.bytes == BYTES - 100);
    CU_ASSERT_EQUAL(stepaf_gpu_import(gpu, &exported, &mine), STEPAF_OK);
    CU_ASSERT_PTR_EQUAL(mine, ptr + 100);
    stepaf_gpu_unimport(gpu, mine);
    pid_t child = fork();
    if (child == 0)
        _exit(use_exported(&exported));
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
    CU_ASSERT_EQUAL(ptr[100], 6);
    stepaf_gpu_free(gpu, ptr);
    end();
}

/* ---- streams ---- */

static int hold, order[4], n_order;

static void wait_for_test(void *arg, uint64_t n)
{
    (void)arg, (void)n;
    while (__atomic_load_n(&hold, __ATOMIC_ACQUIRE))
        usleep(100);
}

static void note(void *arg, uint64_t n)
{
    (void)arg;
    order[__atomic_fetch_add(&n_order, 1, __ATOMIC_ACQ_REL)] = (int)n;
}

static void streams_go_on_in_order_and_wait_for_events(void)
{
    void *first = NULL, *second = NULL, *event = NULL;
    struct stepaf_gpu_word word;
    uint8_t *ptr;

    begin();
    ptr = allocate();
    hold = 1;
    n_order = 0;
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_stream_create(gpu, &first), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_stream_create(gpu, &second), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_event_create(gpu, &event), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_gpu_event_test(gpu, event), STEPAF_OK); /* not recorded: has come by */
    cpu_queue_call(first, wait_for_test, NULL, 0);
    cpu_queue_call(first, note, NULL, 1);
    CU_ASSERT_EQUAL(stepaf_gpu_event_record(gpu, event, first), STEPAF_OK);
    cpu_queue_call(second, note, NULL, 2); /* waits for nobody */
    CU_ASSERT_EQUAL(stepaf_gpu_stream_sync(gpu, second), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_gpu_event_await(gpu, event, second), STEPAF_OK);
    cpu_queue_call(second, note, NULL, 3);
    word = (struct stepaf_gpu_word){(uint64_t *)(void *)ptr, 77};
    CU_ASSERT_EQUAL(stepaf_gpu_store(gpu, &word, 1, second), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_gpu_copy(gpu, ptr + 512, ptr, 8, second), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_gpu_event_test(gpu, event), STEPAF_INPROGRESS);
    CU_ASSERT(n_order == 1 && *word.at == 0);
    __atomic_store_n(&hold, 0, __ATOMIC_RELEASE);
    CU_ASSERT(cpu_queue_sync(SYNC_MS));
    CU_ASSERT_EQUAL(stepaf_gpu_event_test(gpu, event), STEPAF_OK);
    CU_ASSERT(n_order == 3 && order[0] == 2 && order[1] == 1 && order[2] == 3);
    CU_ASSERT(*word.at == 77 && *(uint64_t *)(void *)(ptr + 512) == 77);
    CU_ASSERT_EQUAL(stepaf_gpu_copy(gpu, ptr, ptr + 512, BYTES, second), STEPAF_ERR_INVALID);
    stepaf_gpu_event_destroy(gpu, event);
    stepaf_gpu_stream_destroy(gpu, first);
    stepaf_gpu_stream_destroy(gpu, second);
    stepaf_gpu_free(gpu, ptr);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"memory is the device's", memory_is_the_devices},
        {"memory is shared between processes", memory_is_shared_between_processes},
        {"streams go on in order and wait for events", streams_go_on_in_order_and_wait_for_events},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
