/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU through a driver that is made up: what each failure leaves behind, and what memory is. What
 * the core makes of it is gpu/test_region. */
#include <dlfcn.h>

#include "cuda_fake.h"
#include "unit.h"

static struct stepaf_gpu *gpu;

static void begin(void)
{
    cuda_fake_begin();
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
}

/* Everything is given back, and the thread is as it was. */
static void end(void)
{
    stepaf_gpu_close(gpu);
    CU_ASSERT_EQUAL(cuda_fake.n_held, 0);
    CU_ASSERT_EQUAL(cuda_fake_thread.depth, 0);
    CU_ASSERT_EQUAL(cuda_fake_thread.mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuda_fake_end();
}

static void facts_are_the_current_gpus(void)
{
    CUcontext second;

    cuda_fake_begin();
    CU_ASSERT_EQUAL_FATAL(stepaf_cuda_driver(NULL)->primary_retain(&second, 1), CUDA_SUCCESS);
    cuda_fake_thread.current = second;
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
    UNIT_STRING(stepaf_gpu_facts(gpu)->name, "Fake GPU 1");
    UNIT_STRING(stepaf_gpu_facts(gpu)->bus, "0000:2b:00.0");
    CU_ASSERT_EQUAL(stepaf_gpu_facts(gpu)->n_sms, 132);
    CU_ASSERT_EQUAL(stepaf_cuda_driver(NULL)->primary_release(1), CUDA_SUCCESS);
    end();
}

/* What was to fail did not, since there are fewer calls than that; what takes it back may not. */
static void succeed(void)
{
    CU_ASSERT(cuda_fake.n_calls < cuda_fake.fail_at);
    cuda_fake.fail_at = 0;
}

static bool do_open(void)
{
    struct stepaf_gpu *other = NULL;
    stepaf_status_t status = stepaf_gpu_open(&other);

    CU_ASSERT_EQUAL(status != STEPAF_OK, other == NULL);
    if (status)
        return false;
    succeed();
    stepaf_gpu_close(other);
    return true;
}

static bool do_alloc(void)
{
    uint8_t *ptr = NULL;

    if (stepaf_gpu_alloc(gpu, 1000, (void **)&ptr))
        return false;
    CU_ASSERT(ptr[0] == 0 && ptr[999] == 0);
    succeed();
    stepaf_gpu_free(gpu, ptr);
    return true;
}

static bool do_pinned(void)
{
    uint8_t *ptr = NULL;

    if (stepaf_gpu_alloc_host(gpu, 100, (void **)&ptr))
        return false;
    CU_ASSERT(ptr[0] == 0 && ptr[99] == 0);
    succeed();
    stepaf_gpu_free_host(gpu, ptr);
    return true;
}

/* Host memory that is there already. */
static bool do_pin(void)
{
    static uint8_t memory[8192];
    bool own = false;

    if (stepaf_gpu_pin(gpu, memory, sizeof memory, &own))
        return false;
    CU_ASSERT(own);
    succeed();
    stepaf_gpu_unpin(gpu, memory);
    return true;
}

/* As another process would: export, map, look, unmap. */
static bool do_share(void)
{
    struct cuda_piece *piece = cuda_fake_piece(4096, 0, true);
    struct stepaf_gpu_export exported;
    uint8_t *one = NULL, *other = NULL;
    stepaf_status_t status = stepaf_gpu_export(gpu, piece->base + 100, &exported);

    memset(piece->base, 7, piece->bytes);
    exported.process++;
    if (!status)
        status = stepaf_gpu_import(gpu, &exported, (void **)&one);
    if (!status) {
        succeed();
        CU_ASSERT(one != piece->base + 100 && *one == 7);
        int n = cuda_fake_count();
        CU_ASSERT_EQUAL(stepaf_gpu_import(gpu, &exported, (void **)&other), STEPAF_OK);
        CU_ASSERT(other == one && cuda_fake_count() == n);
        stepaf_gpu_unimport(gpu, other);
        CU_ASSERT_EQUAL(cuda_fake_count(), n);
        stepaf_gpu_unimport(gpu, one);
    }
    (void)stepaf_cuda_driver(NULL)->mem_free((CUdeviceptr)piece->base);
    return status == STEPAF_OK;
}

/* Let the first call of the driver fail, then the second, until none does. */
static void sweep(bool (*act)(void))
{
    int at = 0, n_pieces, n_held;
    bool done = false;

    begin();
    n_pieces = cuda_fake_count();
    n_held = cuda_fake.n_held;
    while (!done && at < 200) {
        cuda_fake.n_calls = 0;
        cuda_fake.fail_at = ++at;
        done = act();
        if (!done)
            UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
        cuda_fake.fail_at = 0;
        CU_ASSERT_EQUAL(cuda_fake_count(), n_pieces);
        CU_ASSERT_EQUAL(cuda_fake.n_held, n_held);
        CU_ASSERT_EQUAL(cuda_fake_thread.depth, 0);
    }
    CU_ASSERT(done && at > 2);
    end();
}

static void nothing_is_left_of_what_fails(void)
{
    sweep(do_alloc);
    sweep(do_pinned);
    sweep(do_pin);
}

static void nothing_is_left_of_an_open_that_fails(void)
{
    int at = 0;
    bool done = false;

    cuda_fake_begin();
    while (!done && at < 200) {
        cuda_fake.n_calls = 0;
        cuda_fake.fail_at = ++at;
        done = do_open();
        CU_ASSERT_EQUAL(cuda_fake.n_held, 0);
        CU_ASSERT_EQUAL(cuda_fake_thread.depth, 0);
    }
    CU_ASSERT(done && at > 15);
    cuda_fake_end();
}

static void nothing_is_left_of_an_import_that_fails(void)
{
    sweep(do_share);
}

static void own_memory_needs_no_handle(void)
{
    struct cuda_piece *near, *far;
    struct stepaf_gpu_export exported;
    void *ptr;

    begin();
    near = cuda_fake_piece(4096, 0, true);
    far = cuda_fake_piece(4096, 1, true);
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_export(gpu, near->base + 8, &exported), STEPAF_OK);
    CU_ASSERT(exported.offset == 8 && exported.bytes == 4088);
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_import(gpu, &exported, &ptr), STEPAF_OK);
    CU_ASSERT_PTR_EQUAL(ptr, near->base + 8);
    stepaf_gpu_unimport(gpu, ptr);
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_export(gpu, far->base, &exported), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_import(gpu, &exported, &ptr), STEPAF_OK);
    CU_ASSERT_PTR_EQUAL(ptr, far->base);
    stepaf_gpu_unimport(gpu, ptr);
    CU_ASSERT_EQUAL(cuda_fake_count(), 2);
    end();
}

/* What an allocation of @a bytes takes. */
static size_t taken(size_t bytes)
{
    struct stepaf_gpu_place place;
    uint8_t *ptr = NULL;

    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_alloc(gpu, bytes, (void **)&ptr), STEPAF_OK);
    CU_ASSERT(ptr[0] == 0 && ptr[bytes - 1] == 0);
    stepaf_gpu_classify(ptr, &place);
    stepaf_gpu_free(gpu, ptr);
    return place.bytes;
}

static void large_memory_has_whole_pages(void)
{
    size_t page = 2 << 20;

    begin();
    CU_ASSERT_EQUAL(taken(1000), 1000);
    CU_ASSERT_EQUAL(taken(page - 1), page - 1);
    CU_ASSERT_EQUAL(taken(page), page);
    CU_ASSERT_EQUAL(taken(page + 1), 2 * page);
    CU_ASSERT_EQUAL(taken(3 * page), 3 * page);
    end();
}

static void lies_about_places_are_refused(void)
{
    struct cuda_piece *piece;
    struct stepaf_gpu_export exported, lie;
    void *ptr = NULL;

    begin();
    piece = cuda_fake_piece(4096, 0, true);
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_export(gpu, piece->base, &exported), STEPAF_OK);
    lie = exported;
    lie.address = (uintptr_t)&exported;
    CU_ASSERT_EQUAL(stepaf_gpu_import(gpu, &lie, &ptr), STEPAF_ERR_PROTOCOL);
    lie = exported;
    lie.process++;
    lie.bytes++;
    CU_ASSERT_EQUAL(stepaf_gpu_import(gpu, &lie, &ptr), STEPAF_ERR_PROTOCOL);
    lie.offset = UINT64_MAX;
    CU_ASSERT_EQUAL(stepaf_gpu_import(gpu, &lie, &ptr), STEPAF_ERR_PROTOCOL);
    CU_ASSERT_PTR_NULL(ptr);
    CU_ASSERT_EQUAL(cuda_fake_count(), 1);
    end();
}

static void launches_are_as_asked_for(void)
{
    struct stepaf_kernel_args args = {.epoch = 77, .n_tensors = 3};
    bool capturing = false;
    int stream;

    begin();
    CU_ASSERT_EQUAL(stepaf_gpu_launch(gpu, STEPAF_KERNEL_SEND, &args, 5, 32, true, &stream),
                    STEPAF_OK);
    CU_ASSERT(cuda_fake.launched.gridDimX == 5 && cuda_fake.launched.blockDimX == 32);
    CU_ASSERT(cuda_fake.launched.numAttrs == 1 && cuda_fake.args.epoch == 77);
    CU_ASSERT_EQUAL(stepaf_gpu_launch(gpu, STEPAF_KERNEL_GATE, &args, 1, 64, false, &stream),
                    STEPAF_OK);
    CU_ASSERT_EQUAL(cuda_fake.launched.numAttrs, 0);
    cuda_fake.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CU_ASSERT(!stepaf_gpu_capturing(gpu, &stream, &capturing) && capturing);
    cuda_fake.capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    CU_ASSERT_EQUAL(stepaf_gpu_capturing(gpu, &stream, &capturing), STEPAF_ERR_INVALID);
    end();
}

static int n_searches; /* for the driver among the loaded libraries */

/* The C library's place taken. */
void *dlopen(const char *name, int flags)
{
    void *(*real)(const char *, int);
    void *symbol = dlsym(RTLD_NEXT, "dlopen");

    memcpy(&real, &symbol, sizeof(real));
    n_searches += name && strcmp(name, "libcuda.so.1") == 0 && flags & RTLD_NOLOAD;
    return real(name, flags);
}

/* Regions are registered by the thousands, and most programs have no GPU. */
static void a_driver_that_is_not_there_is_searched_for_once(void)
{
    (void)stepaf_cuda_driver_if_there();
    int before = n_searches;
    for (int i = 0; i < 100; i++)
        CU_ASSERT_PTR_NULL(stepaf_cuda_driver_if_there());
    CU_ASSERT_EQUAL(n_searches, before);
    CU_ASSERT_PTR_NOT_NULL_FATAL(
        dlopen("libBrokenLocale.so.1", RTLD_NOW)); /* may have brought it */
    CU_ASSERT_PTR_NULL(stepaf_cuda_driver_if_there());
    CU_ASSERT_EQUAL(n_searches, before + 1);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a driver that is not there is searched for once",
         a_driver_that_is_not_there_is_searched_for_once},
        {"facts are the current GPU's", facts_are_the_current_gpus},
        {"nothing is left of an open that fails", nothing_is_left_of_an_open_that_fails},
        {"nothing is left of what fails", nothing_is_left_of_what_fails},
        {"nothing is left of an import that fails", nothing_is_left_of_an_import_that_fails},
        {"own memory needs no handle", own_memory_needs_no_handle},
        {"large memory has whole pages", large_memory_has_whole_pages},
        {"lies about places are refused", lies_about_places_are_refused},
        {"launches are as asked for", launches_are_as_asked_for},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
