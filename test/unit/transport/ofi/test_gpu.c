/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric and GPU memory, both made up: when it is registered, and what speaks against it. */
#include "device/cuda_fake.h"
#include "ofi_fabric.h"
#include "ofi_gpu.h"
#include "unit.h"

enum { BYTES = 5000, AT = 700, GPU_DEVICE = 1 };

static struct side a, b;
static struct stepaf_gpu *gpu;
static struct stepaf_mem region;
static char text[STEPAF_REASON_MAX];
static const char *names = ""; /* STEPAF_OFI_DOMAINS */

/* A GPU, and a provider that takes its memory and promises to call nothing. */
static void begin(const char *setting)
{
    static const char *settings[] = {"STEPAF_OFI_GPU", NULL, "STEPAF_OFI_DOMAINS", "", NULL};

    cuda_fake_begin();
    cuda_fake.has_dmabuf = cuda_fake.has_rdma = true;
    cuda_fake.flush_options = CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
    ofi_fabric_reset(81);
    stepaf_ofi_library_fake = &ofi_fabric_library;
    ofi_gpu.n_listed = ofi_gpu.n_promising = 4;
    settings[1] = setting;
    settings[3] = names;
    side_settings = settings;
    side_ops = &stepaf_ofi_ops;
}

static stepaf_status_t add(void)
{
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
    const struct cuda_piece *piece = cuda_fake_piece(AT + BYTES, 0, true);
    region = (struct stepaf_mem){
        .base = piece->base + AT, .bytes = BYTES, .kind = STEPAF_MEM_CUDA, .fd = -1, .gpu = gpu};
    side_gpu = stepaf_gpu_facts(gpu)->bus;
    fabric_open(&a, 1);
    stepaf_status_t status = stepaf_ofi_ops.reg_mem(a.transport, &region);
    stepaf_ofi_ops.describe_gpu(a.transport, text);
    return status;
}

static void end(void)
{
    stepaf_ofi_ops.dereg_mem(a.transport, &region);
    side_close(&a);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
    stepaf_gpu_close(gpu);
    CU_ASSERT_EQUAL(cuda_fake.n_held, 0);
    cuda_fake_end();
    side_gpu = NULL;
}

static void expect_direct(const char *words)
{
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    CU_ASSERT_PTR_NOT_NULL(region.registration[a.transport->index]);
    CU_ASSERT(ofi_gpu.base == region.base && ofi_gpu.bytes == BYTES);
    CU_ASSERT(ofi_gpu.iface == FI_HMEM_CUDA);
    CU_ASSERT_EQUAL(ofi_gpu.device, stepaf_gpu_facts(gpu)->ordinal);
    CU_ASSERT_EQUAL(cuda_fake.n_synced, 1);
    UNIT_STRING(text, words);
    end();
}

static void expect_staged(const char *words)
{
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    CU_ASSERT_PTR_NULL(region.registration[a.transport->index]);
    CU_ASSERT_PTR_NULL(ofi_gpu.base);
    CU_ASSERT_EQUAL(cuda_fake.n_synced, 0);
    UNIT_CONTAINS(text, "staged: efa: ");
    UNIT_CONTAINS(text, words);
    end();
}

static void expect_refused(const char *words)
{
    CU_ASSERT_EQUAL(add(), STEPAF_ERR_UNSUPPORTED);
    CU_ASSERT_PTR_NULL(region.registration[a.transport->index]);
    UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_OFI_GPU=direct: efa: ");
    UNIT_CONTAINS(stepaf_last_error()->text, words);
    end();
}

static void who_promises_to_call_nothing_takes_it(void)
{
    begin("auto");
    expect_direct("FI_HMEM over efa");
    CU_ASSERT_EQUAL(ofi_gpu.n_options, 2);
    begin("auto");
    ofi_gpu.by_card = -FI_EOPNOTSUPP;
    expect_direct("FI_HMEM over efa");
    begin("auto"); /* before 1.18 */
    ofi_gpu.without_calls = -FI_ENOPROTOOPT;
    expect_direct("FI_HMEM over efa");
}

static void who_does_not_is_opened_without(void)
{
    begin("auto");
    ofi_gpu.without_calls = -FI_EOPNOTSUPP;
    expect_staged("this provider may make CUDA calls, which wait for streams");
    begin("auto");
    ofi_gpu.without_calls = ofi_gpu.by_card = -FI_ENOPROTOOPT;
    expect_staged("this provider may make CUDA calls, which wait for streams");
    begin("auto");
    ofi_gpu.refuse_enable = -FI_EOPNOTSUPP;
    expect_staged("this provider cannot be opened for GPU memory: Operation not supported");
}

static void the_rest_is_staged_and_the_reason_is_told(void)
{
    begin("auto");
    ofi_gpu.n_listed = 0;
    expect_staged("this provider does not support GPU memory (FI_HMEM)");
    CU_ASSERT_EQUAL(ofi_gpu.n_options, 0);
    begin("auto");
    ofi_gpu.refuse = -FI_ENOSYS;
    expect_staged("cannot register GPU memory: Function not implemented");
    begin("auto"); /* its own, not this process's */
    ofi_gpu.refuse = -FI_ENOMEM;
    expect_staged("cannot register GPU memory: Cannot allocate memory");
    begin("auto");
    cuda_fake.flush_options = 0;
    expect_staged("cannot flush");
    begin("auto");
    cuda_fake.two_ways = true;
    expect_staged("two paths to its memory");
    begin("staged");
    expect_staged("STEPAF_OFI_GPU=staged");
    CU_ASSERT_EQUAL(ofi_gpu.n_options, 0);
}

static void direct_takes_it_or_fails(void)
{
    begin("direct");
    ofi_gpu.n_promising = 0;
    expect_direct("FI_HMEM over efa (STEPAF_OFI_GPU=direct: it may wait for streams)");
    begin("direct");
    ofi_gpu.n_listed = 0;
    expect_refused("does not support GPU memory");
    begin("direct");
    ofi_gpu.refuse_enable = -FI_EOPNOTSUPP;
    expect_refused("cannot be opened for GPU memory");
    begin("direct");
    ofi_gpu.refuse = -FI_EINVAL;
    expect_refused("cannot register GPU memory: Invalid argument");
    begin("direct");
    cuda_fake.two_ways = true;
    expect_refused("two paths");
    begin("direct");
    cuda_fake.flush_options = 0;
    expect_refused("cannot flush");
}

/* Each rail has to take it. */
static void of_two_rails_both_take_it(void)
{
    static const char *const domains[] = {"d0", "d1", NULL};

    names = "d0,d1";
    for (int i = 0; i < 5; i++) {
        begin(i == 4 ? "direct" : "auto");
        ofi_fabric.domains = domains;
        ofi_gpu.n_promising = i == 1 || i == 4 ? 1 : 4;
        ofi_gpu.n_listed = i == 2 ? 1 : 2;
        ofi_gpu.refuse = i == 3 ? -FI_EINVAL : 0;
        ofi_gpu.refuse_after = 1;
        CU_ASSERT_EQUAL(add(), STEPAF_OK);
        static const char *const words[] = {
            "FI_HMEM over efa", "staged: efa: this provider may make CUDA calls",
            "staged: efa: this provider does not support GPU memory",
            "staged: efa: cannot register GPU memory: Invalid argument",
            "FI_HMEM over efa (STEPAF_OFI_GPU=direct"};
        UNIT_CONTAINS(text, words[i]);
        CU_ASSERT_EQUAL(ofi_of(&a)->n_rails, 2);
        CU_ASSERT_EQUAL(region.registration[a.transport->index] != NULL, i == 0 || i == 4);
        end();
    }
    names = "";
}

/* Without a GPU nobody asks for it: some providers take another way to host memory then. */
static void who_has_no_gpu_does_not_ask(void)
{
    begin("auto");
    side_open(&a, 1);
    CU_ASSERT_EQUAL(ofi_gpu.n_options, 0);
    stepaf_ofi_ops.describe_gpu(a.transport, text);
    UNIT_STRING(text, "");
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK); /* later, as by another commit */
    const struct cuda_piece *piece = cuda_fake_piece(BYTES, 0, true);
    region = (struct stepaf_mem){
        .base = piece->base, .bytes = BYTES, .kind = STEPAF_MEM_CUDA, .fd = -1, .gpu = gpu};
    CU_ASSERT_EQUAL(stepaf_ofi_ops.reg_mem(a.transport, &region), STEPAF_OK);
    stepaf_ofi_ops.describe_gpu(a.transport, text);
    UNIT_CONTAINS(text, "staged: efa: this rank had no GPU memory when libfabric was opened");
    end();
}

static void what_is_written_from_it_and_to_it_arrives(void)
{
    struct stepaf_xfer xfer = {.bytes = BYTES};
    struct stepaf_post post = {
        .n_xfer = 1, .xfer = &xfer, .msg = {.type = STEPAF_MSG_RESPONSE, .seq = 3}};

    begin("auto");
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    fabric_open(&b, 1);
    fabric_join(&a, 0, &b, 0);
    struct stepaf_mem *there = fabric_memory(&b, BYTES);
    struct side *sides[] = {&a, &b};
    fabric_prove(sides, 2);
    for (int i = 0; i < BYTES; i++)
        region.base[i] = (uint8_t)(i * 7 + 1);
    post.link = a.links[0];
    xfer.src = region.base;
    xfer.src_mem = &region;
    xfer.dst = side_import(&a, 0, &b, there);
    struct stepaf_post *posts[] = {&post};
    CU_ASSERT_EQUAL(stepaf_ofi_ops.post(posts, 1), 0);
    CU_ASSERT_TRUE(fabric_until_messages(&b, &a, 1));
    CU_ASSERT_EQUAL(memcmp(there->base, region.base, BYTES), 0);
    stepaf_ofi_ops.release_mem(a.links[0], (struct stepaf_rmem *)(uintptr_t)xfer.dst);
    /* And back into it. */
    memset(region.base, 0, BYTES);
    xfer = (struct stepaf_xfer){.bytes = BYTES,
                                .src = there->base,
                                .src_mem = there,
                                .dst = side_import(&b, 0, &a, &region)};
    post = (struct stepaf_post){.n_xfer = 1,
                                .xfer = &xfer,
                                .link = b.links[0],
                                .msg = {.type = STEPAF_MSG_START, .seq = 4}};
    CU_ASSERT_EQUAL(stepaf_ofi_ops.post(posts, 1), 0);
    CU_ASSERT_TRUE(fabric_until_messages(&a, &b, 1));
    CU_ASSERT_EQUAL(memcmp(there->base, region.base, BYTES), 0);
    CU_ASSERT_EQUAL(ofi_fabric.n_foreign, 0);
    stepaf_ofi_ops.release_mem(b.links[0], (struct stepaf_rmem *)(uintptr_t)xfer.dst);
    side_close(&b);
    end();
}

static bool is_packed_as(const struct stepaf_pack *before)
{
    struct stepaf_pack now = {0};

    stepaf_ofi_ops.pack_mem(a.transport, &region, &now);
    bool is = now.bytes == before->bytes && !memcmp(now.data, before->data, now.bytes);
    free(now.data);
    return is;
}

/* For a process that takes a lost peer's place, its keys change as those of other memory. */
static void its_keys_change(void)
{
    struct stepaf_pack before = {0};

    begin("auto");
    CU_ASSERT_EQUAL(add(), STEPAF_OK);
    fabric_open(&b, 1);
    fabric_join(&a, 0, &b, 0);
    struct side *sides[] = {&a, &b};
    fabric_prove(sides, 2);
    stepaf_ofi_ops.pack_mem(a.transport, &region, &before);
    a.up.lost(&a.up, a.links[0], "it is gone");
    int n_open = ofi_fabric.n_open;
    ofi_gpu.refuse = -FI_EFAULT;
    CU_ASSERT_EQUAL(stepaf_ofi_ops.reopen(a.transport), STEPAF_ERR_TRANSPORT);
    CU_ASSERT_TRUE(is_packed_as(&before));
    CU_ASSERT_EQUAL(ofi_fabric.n_open, n_open);
    ofi_gpu.refuse = 0;
    CU_ASSERT_EQUAL(stepaf_ofi_ops.reopen(a.transport), STEPAF_OK);
    CU_ASSERT_FALSE(is_packed_as(&before));
    CU_ASSERT_EQUAL(ofi_gpu.base, region.base);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, n_open + 2); /* the memory, and slots */
    stepaf_ofi_ops.shrink(a.transport);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, n_open + 1);
    free(before.data);
    side_close(&b);
    end();
}

static void a_try_says_the_same(void)
{
    begin("auto");
    CU_ASSERT_EQUAL_FATAL(stepaf_gpu_open(&gpu), STEPAF_OK);
    struct stepaf_env env;
    CU_ASSERT_EQUAL_FATAL(stepaf_env_load(&env), STEPAF_OK);
    stepaf_ofi_ops.probe_gpu(&env, gpu, text);
    UNIT_STRING(text, "FI_HMEM over efa");
    ofi_fabric.names = (const char *const[]){NULL};
    stepaf_ofi_ops.probe_gpu(&env, gpu, text);
    UNIT_CONTAINS(text, "libfabric has no provider");
    stepaf_env_free(&env);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
    stepaf_gpu_close(gpu);
    CU_ASSERT_EQUAL(cuda_fake.n_held, 0);
    cuda_fake_end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"who promises to call nothing takes it", who_promises_to_call_nothing_takes_it},
        {"who does not is opened without", who_does_not_is_opened_without},
        {"the rest is staged, and the reason is told", the_rest_is_staged_and_the_reason_is_told},
        {"direct takes it or fails", direct_takes_it_or_fails},
        {"of two rails both take it", of_two_rails_both_take_it},
        {"who has no GPU does not ask", who_has_no_gpu_does_not_ask},
        {"what is written from it, and to it, arrives", what_is_written_from_it_and_to_it_arrives},
        {"its keys change", its_keys_change},
        {"a try says the same", a_try_says_the_same},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
