/* SPDX-License-Identifier: Apache-2.0 */
/* What verdicts cost an operation in instructions, to be run by callgrind, as
 * test/lib/verdict_cost.sh does: it collects in functions whose name begins with "counted_", and
 * dumps after each call of "counts_end". An attention and an FFN rank, whose peers are made up,
 * with verdicts off and on. Operations are in blocks, each a dump: what is printed here is of
 * which, in the same order. With --time it prints instead what operations take, in turn with
 * verdicts off and on, as the best of many blocks: that takes no quiet machine either. */
#include <stdio.h>
#include <stdlib.h>

#include "core/plan.h"
#include "fake.h"
#include "unit.h"
#include "verdict/verdict.h"

enum { PUSHED = 1, PULLED = 2, BYTES = 64, WARM_UP = 400, BLOCKS = 12, OPERATIONS = 100 };

struct side {
    struct fake_job *job, *counterpart;
    stepaf_plan_h plan;
    uint8_t *memory;
    uint32_t seq;
};

static void open_side(struct side *side, stepaf_role_t role, const char *setting)
{
    void *memory;

    setenv("STEPAF_VERDICT", setting, 1);
    *side = (struct side){.job = fake_open(role, 1, 1)};
    side->counterpart = fake_open(role == STEPAF_FFN ? STEPAF_ATTENTION : STEPAF_FFN, 1, 1);
    fake_key(side->job, side->counterpart, PUSHED, STEPAF_PUSH, BYTES, 1);
    fake_key(side->job, side->counterpart, PULLED, STEPAF_PULL, BYTES, 1);
    struct fake_job *attention = role == STEPAF_FFN ? side->counterpart : side->job;
    fake_must(!stepaf_alloc(attention->handle, 4096, STEPAF_MEM_HOST, &memory), "memory");
    stepaf_tensor_t push = {PUSHED, memory, BYTES}, pull = {PULLED, (char *)memory + 1024, BYTES};
    if (role == STEPAF_ATTENTION)
        fake_must(!stepaf_plan_create(side->job->handle, &push, 1, &pull, 1, 0, &side->plan),
                  "plan");
    fake_must(!fake_commit(side->job, side->counterpart), "commit");
}

static void close_side(struct side *side)
{
    fake_close(side->job);
    fake_close(side->counterpart);
}

__attribute__((noinline)) static void counts_end(void)
{
    __asm__ volatile("");
}

/* ---- the attention rank: start, and a wait for an answer that is there ---- */

__attribute__((noinline)) static stepaf_status_t counted_operation(const struct side *side)
{
    stepaf_request_h request;
    stepaf_status_t status = stepaf_start(side->plan, &request);

    return status ? status : stepaf_wait(request, 1000000);
}

static void operate(struct side *side)
{
    struct stepaf_msg response = fake_msg(side->job, STEPAF_MSG_RESPONSE, 0, 0, side->seq++);

    response.flags = STEPAF_MSG_RELEASED;
    response.n_words = STEPAF_MSG_SIZES;
    fake_forget(side->job);
    fake_say(side->job, 0, &response);
    fake_must(!counted_operation(side), "operation");
    for (unsigned i = 0; i < side->job->n_records && i < FAKE_RECORDS; i++)
        if (side->job->records[i].msg.type == STEPAF_MSG_ASK) {
            struct stepaf_msg tell =
                fake_msg(side->job, STEPAF_MSG_TELL, 0, 0, side->job->records[i].msg.seq);
            fake_tell(side->job, 0, &tell);
        }
}

/* ---- the FFN rank: receive, and release ---- */

__attribute__((noinline)) static stepaf_status_t counted_batch(const struct side *side)
{
    stepaf_batch_h batch;
    stepaf_status_t status;
    int n;

    status = stepaf_recv(side->job->handle, STEPAF_FROM_ANY, 0, 1000000, &batch, 1, &n);
    return status ? status : stepaf_release(batch);
}

static void announce_plan(struct side *side)
{
    struct stepaf_msg open = fake_msg(side->job, STEPAF_MSG_PLAN, 0, 0, 0);
    struct stepaf_msg tensor = fake_msg(side->job, STEPAF_MSG_TENSOR, 0, 0, 0);

    open.word[0] = 1;
    open.word[2] = 1;
    tensor.word[0] = PUSHED;
    tensor.word[2] = BYTES;
    fake_tell(side->job, 0, &open);
    fake_tell(side->job, 0, &tensor);
}

static void serve(struct side *side)
{
    struct stepaf_msg start = fake_msg(side->job, STEPAF_MSG_START, 0, 0, side->seq++);

    fake_forget(side->job);
    fake_say(side->job, 0, &start);
    fake_must(!counted_batch(side), "batch");
}

static void count(stepaf_role_t role, const char *setting)
{
    struct side side;

    open_side(&side, role, setting);
    if (role == STEPAF_FFN)
        announce_plan(&side);
    for (int block = -1; block < BLOCKS; block++) {
        struct stepaf_plan_obj *made = stepaf_table_get(&side.job->ctx->tables.plans, 0);
        if (block >= 0 && made) /* none is picked to learn from, nor happens to be late */
            made->watched = stepaf_watch_plan_begin(made->seq + INT32_MAX);
        for (int i = 0; i < (block < 0 ? WARM_UP : OPERATIONS); i++)
            role == STEPAF_FFN ? serve(&side) : operate(&side);
        counts_end();
        printf("%s %s %d\n", role == STEPAF_FFN ? "FFN" : "attention", setting,
               block < 0 ? 0 : OPERATIONS);
    }
    close_side(&side);
}

/* ---- time ---- */

enum { TIMED = 300, TIMED_BLOCKS = 6000 };

/* Nanoseconds of an operation, with all that the fake does. */
static double time_block(struct side *side, stepaf_role_t role)
{
    int64_t began = stepaf_monotonic_ns();

    for (int i = 0; i < TIMED; i++)
        role == STEPAF_FFN ? serve(side) : operate(side);
    return (double)(stepaf_monotonic_ns() - began) / TIMED;
}

static void time_role(stepaf_role_t role)
{
    double least[2] = {1e9, 1e9};
    struct side sides[2];

    for (int on = 0; on < 2; on++) {
        open_side(&sides[on], role, on ? "on" : "off");
        if (role == STEPAF_FFN)
            announce_plan(&sides[on]);
    }
    for (int i = 0; i < 2 * TIMED_BLOCKS; i++) {
        double ns = time_block(&sides[i % 2], role);
        if (ns < least[i % 2])
            least[i % 2] = ns;
    }
    printf("%s: %.1f ns an operation of the made-up fabric without verdicts, %.1f with them: %.1f "
           "more\n",
           role == STEPAF_FFN ? "FFN" : "attention", least[0], least[1], least[1] - least[0]);
    for (int on = 0; on < 2; on++)
        close_side(&sides[on]);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--time") == 0) {
        time_role(STEPAF_ATTENTION);
        time_role(STEPAF_FFN);
        return 0;
    }
    count(STEPAF_ATTENTION, "off");
    count(STEPAF_ATTENTION, "on");
    count(STEPAF_FFN, "off");
    count(STEPAF_FFN, "on");
    return 0;
}
