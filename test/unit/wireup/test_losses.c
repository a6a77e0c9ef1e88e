/* SPDX-License-Identifier: Apache-2.0 */
/* Commits of real ranks, some of which are lost before, or in the middle. */
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/handles.h"
#include "ranks.h"
#include "unit.h"

#ifndef SYS_pidfd_open /* headers before Linux 5.3; the number is the same on all machines */
#define SYS_pidfd_open 434
#endif

enum { FIRST = 1, SECOND = 2, BYTES = 64, LIMIT_MS = 20000, MOST = 4 };

static const stepaf_commit_params_t go_on = {.field_mask = STEPAF_COMMIT_LOST,
                                             .lost = STEPAF_COMMIT_LEAVE_LOST};

struct loss_rank {
    const stepaf_boot_t *boot;
    stepaf_context_h ctx;
    stepaf_plan_h plan; /* attention: of the last key declared */
    uint8_t *memory;
    bool ffn;
};

/* What all ranks see. */
struct loss_page {
    _Atomic int pid[MOST];
    _Atomic bool is_quiet; /* the FFN rank has seen that nothing is in flight */
};

static struct loss_page *page;

/* What a rank does before, and behind, an exchange of its bootstrap; NULL: nothing. */
static struct {
    const stepaf_boot_t *boot;
    void (*before)(void), (*behind)(void);
} hooks;

static stepaf_status_t exchange(void *self, const void *data, size_t bytes, void **all_p,
                                size_t *offsets_p, int64_t timeout_us)
{
    if (hooks.before)
        hooks.before();
    stepaf_status_t status = hooks.boot->allgather(self, data, bytes, all_p, offsets_p, timeout_us);
    if (hooks.behind)
        hooks.behind();
    return status;
}

/* Declare a key, and at attention ranks make a plan that pushes it. */
static int declare(struct loss_rank *rank, uint64_t id)
{
    stepaf_tensor_t push = {id, rank->memory, BYTES};

    RANK_CHECK(rank->boot, !stepaf_key_declare(rank->ctx, id, STEPAF_PUSH, BYTES, NULL));
    if (!rank->ffn)
        RANK_CHECK(rank->boot, !stepaf_plan_create(rank->ctx, &push, 1, NULL, 0, 0, &rank->plan));
    return 0;
}

/* Join the job, up to and with the first commit. */
static int join(struct loss_rank *rank, const stepaf_boot_t *boot)
{
    stepaf_boot_t own = *boot;

    own.close = NULL; /* whoever has attached it ends it */
    own.allgather = exchange;
    hooks.boot = boot;
    atomic_store(&page->pid[boot->rank], (int)getpid());
    *rank = (struct loss_rank){.boot = boot};
    RANK_CHECK(boot, !stepaf_init(&own, NULL, &rank->ctx));
    rank->ffn = stepaf_role(rank->ctx) == STEPAF_FFN;
    RANK_CHECK(boot, !stepaf_alloc(rank->ctx, 4096, STEPAF_MEM_HOST, (void **)&rank->memory));
    if (declare(rank, FIRST))
        return 1;
    RANK_CHECK(boot, !stepaf_commit(rank->ctx));
    return 0;
}

/* Wait until the process of rank @a world has ended. */
static void await_end(int world)
{
    int fd = (int)syscall(SYS_pidfd_open, atomic_load(&page->pid[world]), 0);

    (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, LIMIT_MS);
    close(fd);
}

static void end_at_once(void)
{
    _exit(0);
}

/* Commit without rank @a world, which has ended. */
static int leave(const struct loss_rank *rank, int world)
{
    stepaf_member_state_t states[MOST];
    stepaf_members_t members = {.size = sizeof(members)};

    RANK_CHECK(rank->boot, !stepaf_commit_with(rank->ctx, &go_on));
    RANK_CHECK(rank->boot, stepaf_epoch(rank->ctx) == 2);
    RANK_CHECK(rank->boot, !stepaf_members_query(rank->ctx, &members, states, MOST));
    RANK_CHECK(rank->boot, states[world] == STEPAF_MEMBER_OUT);
    return 0;
}

static void run(int size, const char *split, rank_body_t body, void *arg)
{
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(page != MAP_FAILED);
    setenv("STEPAF_SPLIT", split, 1);
    ranks_expect_processes(size, body, arg);
    unsetenv("STEPAF_SPLIT");
    munmap(page, sizeof(*page));
}

/* ---- attention ranks without an FFN rank ---- */

static void await_end_of_last(void)
{
    await_end(1);
}

/* The only FFN rank has told its advert, and cannot be looked up any more. */
static int lose_all(const stepaf_boot_t *boot, void *arg)
{
    struct loss_rank rank;
    stepaf_request_h request;

    (void)arg;
    if (join(&rank, boot) || declare(&rank, SECOND))
        return 1;
    hooks.behind = rank.ffn ? end_at_once : await_end_of_last;
    RANK_CHECK(boot, !stepaf_commit(rank.ctx));
    hooks.behind = NULL;
    RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_ERR_PEER_LOST);
    RANK_CHECK(boot, !stepaf_plan_destroy(rank.plan));
    RANK_CHECK(boot, !declare(&rank, SECOND));
    stepaf_finalize(rank.ctx);
    return 0;
}

static void the_only_ffn_rank_may_end_behind_its_advert(void)
{
    run(2, "attn=1,ffn=1", lose_all, NULL);
}

/* Attention rank 1 is the only one of lane 1, which has no FFN rank. */
static int start_in_vain(const struct loss_rank *rank)
{
    stepaf_request_h request;

    if (rank->boot->rank == 1)
        RANK_CHECK(rank->boot, stepaf_start(rank->plan, &request) == STEPAF_ERR_PEER_LOST);
    return 0;
}

/* Of two lanes, one goes on without its FFN rank. */
static int lose_lane(const stepaf_boot_t *boot, void *arg)
{
    struct loss_rank rank;

    (void)arg;
    if (join(&rank, boot))
        return 1;
    if (boot->rank == 3)
        end_at_once();
    if (declare(&rank, SECOND) || leave(&rank, 3) || start_in_vain(&rank) || declare(&rank, SECOND))
        return 1;
    /* Among the members, for as long as it takes. */
    RANK_CHECK(boot, !stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, INT64_MAX));
    stepaf_finalize(rank.ctx);
    return 0;
}

/* Nobody has taken the place of its FFN rank yet. */
static int join_vacant_lane(const stepaf_boot_t *boot, void *arg)
{
    struct loss_rank rank;

    (void)arg;
    if (join(&rank, boot) || start_in_vain(&rank))
        return 1;
    RANK_CHECK(boot, !stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT));
    stepaf_finalize(rank.ctx);
    return 0;
}

static void a_lane_may_have_no_ffn_rank(void)
{
    setenv("STEPAF_MESH", "lane", 1);
    setenv("STEPAF_LANES", "2", 1);
    run(4, "attn=2,ffn=2", lose_lane, NULL);
    setenv("STEPAF_ROOM_FFN", "1", 1);
    setenv("STEPAF_SECRET", "0123456789abcdef0123456789abcdef", 1);
    run(3, "attn=2,ffn=1", join_vacant_lane, NULL);
    unsetenv("STEPAF_SECRET");
    unsetenv("STEPAF_ROOM_FFN");
    unsetenv("STEPAF_LANES");
    unsetenv("STEPAF_MESH");
}

/* ---- a rank whose own commit has failed ---- */

static void end_with(stepaf_context_h ctx, bool finalizes)
{
    if (finalizes)
        stepaf_finalize(ctx);
    _exit(0);
}

/* Rank 0 enters the commit when rank 1 has given up waiting for it, told its peers so, and
 * ended. */
static int leave_the_impatient(const stepaf_boot_t *boot, void *arg)
{
    bool finalizes = *(bool *)arg;
    struct loss_rank rank;

    if (join(&rank, boot) || declare(&rank, SECOND))
        return 1;
    if (boot->rank == 1) {
        stepaf_contexts[stepaf_handle_context(rank.ctx)].ctx->env.commit_timeout_us = 300000;
        RANK_CHECK(boot, stepaf_commit_with(rank.ctx, &go_on) == STEPAF_ERR_TIMEOUT);
        end_with(rank.ctx, finalizes);
    }
    if (boot->rank == 0)
        await_end(1);
    if (leave(&rank, 1))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_ERR_STATE);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "halfway") == NULL);
    RANK_CHECK(boot, !stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT));
    stepaf_finalize(rank.ctx);
    return 0;
}

static void what_one_that_is_out_has_said_does_not_count(void)
{
    for (int finalizes = 0; finalizes < 2; finalizes++) {
        setenv("STEPAF_TRANSPORTS", finalizes ? "shm" : "tcp", 1);
        setenv("STEPAF_NET_IF", "lo", 1);
        run(4, "attn=2,ffn=2", leave_the_impatient, &(bool){finalizes});
    }
    unsetenv("STEPAF_NET_IF");
    unsetenv("STEPAF_TRANSPORTS");
}

/* ---- operations that begin in the middle of a commit ---- */

static stepaf_plan_h last_plan; /* of the rank that starts it */

static void say_quiet(void)
{
    atomic_store(&page->is_quiet, true);
}

static void start_and_end(void)
{
    stepaf_request_h request;

    while (!atomic_load(&page->is_quiet))
        (void)sched_yield();
    _exit(stepaf_start(last_plan, &request) != STEPAF_OK);
}

/* The FFN rank finds it when it reads what is left of the link of a process that has ended. */
static int leave_who_starts(const stepaf_boot_t *boot, void *arg)
{
    struct loss_rank rank;
    stepaf_batch_h batch;
    int n;

    (void)arg;
    if (join(&rank, boot))
        return 1;
    last_plan = rank.plan;
    RANK_CHECK(boot, !stepaf_key_declare(rank.ctx, SECOND, STEPAF_PULL, BYTES, NULL));
    hooks.before = boot->rank == 1 ? start_and_end : rank.ffn ? say_quiet : NULL;
    if (leave(&rank, 1))
        return 1;
    hooks.before = NULL;
    if (rank.ffn) {
        stepaf_counters_t counters = {.size = sizeof(counters)};
        RANK_CHECK(boot, !stepaf_counters_query(rank.ctx, &counters));
        RANK_CHECK(boot, counters.dropped_stale == 1);
        RANK_CHECK(boot, stepaf_recv(rank.ctx, STEPAF_FROM_ANY, 0, 0, &batch, 1, &n) ==
                             STEPAF_ERR_TIMEOUT);
    }
    RANK_CHECK(boot, !stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT));
    stepaf_finalize(rank.ctx);
    return 0;
}

static void what_begins_in_the_middle_goes_with_its_rank(void)
{
    static const char *const transports[] = {"shm", "tcp"};

    setenv("STEPAF_NET_IF", "lo", 1);
    for (int t = 0; t < 2; t++) {
        setenv("STEPAF_TRANSPORTS", transports[t], 1);
        run(3, "attn=2,ffn=1", leave_who_starts, NULL);
    }
    unsetenv("STEPAF_NET_IF");
    unsetenv("STEPAF_TRANSPORTS");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the only FFN rank may end behind its advert",
         the_only_ffn_rank_may_end_behind_its_advert},
        {"a lane may have no FFN rank", a_lane_may_have_no_ffn_rank},
        {"what one that is out has said does not count",
         what_one_that_is_out_has_said_does_not_count},
        {"what begins in the middle goes with its rank",
         what_begins_in_the_middle_goes_with_its_rank},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
