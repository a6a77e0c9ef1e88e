/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory of the caller that is unmapped or made read-only while peers write to it: a
 * receive buffer of the FFN rank, a pull destination of the attention rank. Both ranks learn why,
 * and none crashes: by the ring only where the kernel copies. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/time.h"
#include "pair_rank.h"
#include "unit.h"

enum { PAGE = 4096, MEMORY = 4 * PAGE };

static const int64_t TIMEOUT_US = 10000000;

enum way { TCP, CMA, RING };

struct mistake {
    enum way way;
    bool at_ffn;    /* whose memory */
    bool read_only; /* or unmapped */
};

/* Registered memory of four pages: the tensor is in the second. */
static uint8_t *lend(stepaf_context_h ctx)
{
    uint8_t *memory =
        mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory != MAP_FAILED && stepaf_register(ctx, memory, MEMORY) == STEPAF_OK ? memory
                                                                                     : NULL;
}

static int spoil(uint8_t *memory, bool read_only)
{
    return read_only ? mprotect(memory + PAGE, PAGE, PROT_READ) : munmap(memory + PAGE, PAGE);
}

static int open_rank(struct pair_rank *rank, const stepaf_boot_t *boot,
                     const struct mistake *mistake, uint8_t **lent_p)
{
    setenv("STEPAF_TRANSPORTS", mistake->way == TCP ? "tcp" : "shm", 1);
    setenv("STEPAF_SHM_CMA", mistake->way == RING ? "off" : "auto", 1);
    setenv("STEPAF_SHM_COPY", mistake->way == RING ? "kernel" : "library", 1);
    if (pair_open(rank, boot, "inline"))
        return 1;
    *lent_p = lend(rank->ctx);
    RANK_CHECK(boot, *lent_p);
    if (rank->ffn)
        RANK_CHECK(boot, stepaf_key_set_recv(rank->ctx, PAIR_PUSHED, *lent_p + PAGE, PAIR_BYTES,
                                             NULL, 0) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank->ctx) == STEPAF_OK);
    return 0;
}

/* Push the library's memory and pull to the lent, or answer. */
static stepaf_status_t exchange(struct pair_rank *rank, stepaf_plan_h plan)
{
    stepaf_tensor_t tensor = {PAIR_PULLED, rank->memory, PAIR_BYTES};
    stepaf_request_h request;
    stepaf_batch_h batch;
    stepaf_status_t status;
    int n;

    if (!rank->ffn) {
        status = stepaf_start(plan, &request);
        return status ? status : stepaf_wait(request, TIMEOUT_US);
    }
    status = stepaf_recv(rank->ctx, STEPAF_FROM_ANY, 0, TIMEOUT_US, &batch, 1, &n);
    return status ? status : stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, NULL);
}

static bool says(const char *text)
{
    const char *own = stepaf_last_error()->text;
    bool it_does = strstr(own, text) != NULL;

    if (!it_does)
        fprintf(stderr, "  said: %s\n", own);
    return it_does;
}

/* Where cross-memory attach is not permitted the ring carries the tensors, and the library copies. */
static bool is_carried_so(const struct pair_rank *rank, const struct mistake *mistake)
{
    bool so = mistake->way != CMA || !strcmp(stepaf_transport_name(rank->ctx, 0), "shm;cma");

    if (!so && rank->ffn)
        puts("  (cross-memory attach is not permitted here)");
    return so;
}

static int make(const stepaf_boot_t *boot, void *arg)
{
    const struct mistake *mistake = arg;
    stepaf_status_t status = STEPAF_OK;
    struct pair_rank rank;
    stepaf_plan_h plan = NULL;
    uint8_t *lent;

    if (open_rank(&rank, boot, mistake, &lent))
        return 1;
    if (!is_carried_so(&rank, mistake)) {
        stepaf_finalize(rank.ctx);
        return 0;
    }
    bool own = rank.ffn == mistake->at_ffn;
    if (!rank.ffn) {
        stepaf_tensor_t push = {PAIR_PUSHED, rank.memory, PAIR_BYTES},
                        pull = {PAIR_PULLED, lent + PAGE, PAIR_BYTES};
        RANK_CHECK(boot, stepaf_plan_create(rank.ctx, &push, 1, &pull, 1, 0, &plan) == STEPAF_OK);
    }
    RANK_CHECK(boot, exchange(&rank, plan) == STEPAF_OK);
    if (own)
        RANK_CHECK(boot, !spoil(lent, mistake->read_only));
    int64_t began = stepaf_monotonic_ns();
    for (int i = 0; i < 100 && !status; i++)
        status = exchange(&rank, plan);
    RANK_CHECK(boot, status == STEPAF_ERR_PEER_LOST);
    RANK_CHECK(boot, says(own ? "registered memory of this rank" : "its registered memory cannot"));
    RANK_CHECK(boot, stepaf_monotonic_ns() - began < TIMEOUT_US * 1000 / 2);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void make_all(enum way way)
{
    for (int i = 0; i < 4; i++) {
        struct mistake mistake = {way, i & 1, i & 2};
        ranks_expect_processes(2, make, &mistake);
    }
}

static void over_tcp(void)
{
    make_all(TCP);
}

static void by_cross_memory_attach(void)
{
    make_all(CMA);
}

static void by_the_ring(void)
{
    make_all(RING);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"over TCP", over_tcp},
        {"by cross-memory attach", by_cross_memory_attach},
        {"by the ring", by_the_ring},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
