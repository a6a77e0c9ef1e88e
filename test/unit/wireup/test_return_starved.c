/* SPDX-License-Identifier: Apache-2.0 */
/* A member that has no memory for the rank that the commit has just admitted: all others, the new
 * one too, hear so at once, and do not wait for it until their deadline. */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/stepaf.h>

#include "boot/member_net_return.h"
#include "ranks.h"
#include "unit.h"

enum { PUSHED = 1, BYTES = 64, MEMBERS = 3, GUEST = MEMBERS, ADDRESS_MAX = 1024, LIMIT_S = 60 };

/* What all processes see. */
struct page {
    _Atomic bool is_told; /* the address is there */
    _Atomic int n_through;
    char address[ADDRESS_MAX];
};

static struct page *page;
static bool is_starved; /* this process */

bool __real_stepaf_member_net_admit(struct stepaf_member_net *net, int rank, uint64_t id,
                                    const void *card, size_t bytes);
bool __wrap_stepaf_member_net_admit(struct stepaf_member_net *net, int rank, uint64_t id,
                                    const void *card, size_t bytes);

/* As if there were no memory for the card, which is the last that it does. */
bool __wrap_stepaf_member_net_admit(struct stepaf_member_net *net, int rank, uint64_t id,
                                    const void *card, size_t bytes)
{
    return __real_stepaf_member_net_admit(net, rank, id, card, bytes) && !is_starved;
}

static int await_all(const stepaf_boot_t *boot)
{
    time_t began = time(NULL);

    while (atomic_load(&page->n_through) < MEMBERS + 1) {
        (void)sched_yield();
        RANK_CHECK(boot, time(NULL) - began < LIMIT_S);
    }
    return 0;
}

/* Who has failed stays until all have heard it, since its end would tell them as well. */
static int expect_refusal(const stepaf_boot_t *boot, stepaf_status_t status, int starved)
{
    const stepaf_error_t *error = stepaf_last_error();

    atomic_fetch_add(&page->n_through, 1);
    RANK_CHECK(boot, status == STEPAF_ERR_NO_MEMORY);
    RANK_CHECK(boot, is_starved || error->peer_world_rank == starved);
    return await_all(boot);
}

static int await_guest(const stepaf_boot_t *boot, stepaf_context_h ctx)
{
    stepaf_member_state_t states[MEMBERS + 1] = {0};
    stepaf_members_t members = {.size = sizeof(members)};
    time_t began = time(NULL);

    while (states[GUEST] != STEPAF_MEMBER_ASKS) {
        (void)stepaf_progress(ctx);
        (void)sched_yield();
        RANK_CHECK(boot, time(NULL) - began < LIMIT_S);
        RANK_CHECK(boot, !stepaf_members_query(ctx, &members, states, MEMBERS + 1));
    }
    return 0;
}

static int admit(const stepaf_boot_t *boot, void *arg)
{
    stepaf_commit_params_t admits = {.field_mask = STEPAF_COMMIT_LOST | STEPAF_COMMIT_RETURN,
                                     .lost = STEPAF_COMMIT_LEAVE_LOST,
                                     .returning = STEPAF_COMMIT_ADMIT};
    stepaf_boot_t own = *boot;
    int starved = *(int *)arg;
    stepaf_context_h ctx;

    own.close = NULL; /* whoever has attached it ends it */
    RANK_CHECK(boot, !stepaf_init(&own, NULL, &ctx));
    RANK_CHECK(boot, !stepaf_key_declare(ctx, PUSHED, STEPAF_PUSH, BYTES, NULL));
    RANK_CHECK(boot, !stepaf_commit(ctx));
    if (boot->rank == 0) {
        RANK_CHECK(boot, !stepaf_members_address(ctx, page->address, sizeof(page->address)));
        atomic_store(&page->is_told, true);
    }
    if (await_guest(boot, ctx))
        return 1;
    is_starved = boot->rank == starved;
    if (expect_refusal(boot, stepaf_commit_with(ctx, &admits), starved))
        return 1;
    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_ERR_STATE);
    stepaf_finalize(ctx);
    return 0;
}

static int ask(int starved)
{
    stepaf_boot_t boot = {.rank = GUEST, .size = MEMBERS + 1}; /* for what is said */
    stepaf_context_h ctx;

    while (!atomic_load(&page->is_told))
        (void)sched_yield();
    setenv("STEPAF_JOIN", page->address, 1);
    setenv("STEPAF_RANK", "3", 1);
    setenv("STEPAF_SIZE", "3", 1);
    RANK_CHECK(&boot, !stepaf_init(NULL, NULL, &ctx));
    RANK_CHECK(&boot, !stepaf_key_declare(ctx, PUSHED, STEPAF_PUSH, BYTES, NULL));
    if (expect_refusal(&boot, stepaf_commit(ctx), starved))
        return 1;
    stepaf_finalize(ctx);
    return 0;
}

static void starve(int starved)
{
    int status = -1;

    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(page != MAP_FAILED);
    pid_t guest = fork();
    CU_ASSERT_FATAL(guest >= 0);
    if (guest == 0)
        _exit(ask(starved));
    ranks_expect_processes(MEMBERS, admit, &starved);
    CU_ASSERT_EQUAL(waitpid(guest, &status, 0), guest);
    CU_ASSERT_EQUAL(status, 0);
    munmap(page, sizeof(*page));
}

static void who_has_no_memory_for_a_guest_says_so(void)
{
    for (int starved = 0; starved < MEMBERS; starved++)
        starve(starved);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"who has no memory for a guest says so", who_has_no_memory_for_a_guest_says_so},
        CU_TEST_INFO_NULL,
    };

    setenv("STEPAF_SPLIT", "attn=2,ffn=1", 1);
    setenv("STEPAF_ROOM_FFN", "1", 1);
    setenv("STEPAF_SECRET", "0123456789abcdef0123456789abcdef", 1);
    return unit_run(tests);
}
