/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in any order and with anything in them, to an attention rank or an FFN rank (the first
 * byte) that starts, cancels, answers and releases meanwhile, over links that fill up and break.
 * Each step is STEP bytes. After each everything inside still fits together; a message that
 * changes nothing is counted as dropped. */
#include <string.h>

#include "core/batch.h"
#include "core/plan.h"
#include "core/region.h"
#include "core/remote_plan.h"
#include "fake.h"
#include "fuzz.h"
#include "state.h"

enum { STEP = 12, PEERS = 2, KEPT = 8, PUSHED = 1, PULLED = 2, SHALLOW = 3, BYTES = 100 };

struct run {
    struct fake_job *job;
    uint8_t *memory;
    stepaf_plan_h plans[3];
    stepaf_request_h requests[KEPT];
    stepaf_batch_h batches[KEPT];
};

static void *allocate(struct fake_job *job)
{
    void *memory = NULL;

    FUZZ_CHECK(stepaf_alloc(job->handle, 4096, STEPAF_MEM_HOST, &memory) == STEPAF_OK);
    return memory;
}

/* The rank whose advert stands for the others'; made once for each role. */
static struct fake_job *counterpart_of(stepaf_role_t role)
{
    static struct fake_job *twins[2];
    stepaf_role_t other = role == STEPAF_ATTENTION ? STEPAF_FFN : STEPAF_ATTENTION;

    if (!twins[other]) {
        twins[other] = fake_open(other, PEERS, PEERS);
        (void)allocate(twins[other]);
    }
    return twins[other];
}

static void make_plans(struct run *run)
{
    stepaf_context_h handle = run->job->handle;
    stepaf_tensor_t push[2] = {{PUSHED, run->memory, BYTES}, {SHALLOW, run->memory + 100, 50}};
    stepaf_tensor_t pull[2] = {{PULLED, run->memory + 1000, BYTES},
                               {PULLED, run->memory + 2000, 60}};

    FUZZ_CHECK(!stepaf_plan_create(handle, push, 1, pull, 2, 0, &run->plans[0]));
    FUZZ_CHECK(!stepaf_plan_create(handle, push, 2, NULL, 0, 0, &run->plans[1]));
    FUZZ_CHECK(!stepaf_plan_create(handle, push, 1, pull, 2, STEPAF_PLAN_SCATTER, &run->plans[2]));
}

static void begin(struct run *run, stepaf_role_t role)
{
    struct fake_job *counterpart = counterpart_of(role);

    *run = (struct run){.job = fake_open(role, PEERS, PEERS)};
    fake_key(run->job, counterpart, PUSHED, STEPAF_PUSH, BYTES, 2);
    fake_key(run->job, counterpart, PULLED, STEPAF_PULL, BYTES, 2);
    fake_key(run->job, counterpart, SHALLOW, STEPAF_PUSH, BYTES, 1);
    run->memory = allocate(run->job);
    if (role == STEPAF_ATTENTION)
        make_plans(run);
    FUZZ_CHECK(fake_commit(run->job, counterpart) == STEPAF_OK);
    run->job->ctx->clock.server = 0; /* as where it pings */
}

static const struct stepaf_remote_plan *remote_of(const struct stepaf_ctx *ctx, uint32_t peer,
                                                  uint32_t number)
{
    const struct stepaf_peer *it = &ctx->peers[peer];

    return number < it->n_remotes ? it->remotes[number] : NULL;
}

/* Set the slot and number that an honest peer would send. */
static void be_honest(const struct stepaf_ctx *ctx, uint32_t peer, struct stepaf_msg *msg,
                      bool next_slot)
{
    const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, msg->plan);
    const struct stepaf_remote_plan *remote = remote_of(ctx, peer, msg->plan);

    if (msg->type == STEPAF_MSG_PONG) {
        msg->seq = ctx->peers[peer].clock.seq;
    } else if (stepaf_is_attention(ctx)) {
        msg->seq = plan && msg->slot < plan->depth ? plan->ops[msg->slot].seq : 0;
    } else if (remote && msg->type == STEPAF_MSG_CANCEL) {
        msg->seq = msg->slot < remote->depth ? remote->batches[msg->slot].seq : 0;
    } else if (remote) {
        msg->seq = remote->seq;
        msg->slot = next_slot ? remote->slot : msg->slot;
    }
}

static struct stepaf_msg make_msg(const struct run *run, uint32_t peer, const uint8_t *step)
{
    static const uint32_t large[] = {BYTES + 1,  4096,       0x10000,    0x7fffffff,
                                     0x80000000, 0xffffff9c, 0xfffffffe, 0xffffffff};
    const struct stepaf_ctx *ctx = run->job->ctx;
    uint32_t number = step[3] == 255 ? 65535 : step[3] % 8;
    struct stepaf_msg msg = fake_msg(run->job, (enum stepaf_msg_type)(step[1] % 16), number,
                                     step[4] < 240 ? step[4] % 4 : step[4], 0);

    if (step[1] >= 240)
        msg.type = step[1];
    msg.flags = step[2] >> 1;
    msg.n = step[5] < 240 ? step[5] % 3 : step[5];
    msg.epoch = (uint16_t)(msg.epoch + (step[7] >= 240 ? step[7] : 0));
    for (int i = 0; i < STEPAF_MSG_WORDS; i++)
        msg.word[i] = step[8 + i % 3] % 128;
    /* A tensor's: key, region and offset; a plan's: counts. */
    msg.word[msg.type == STEPAF_MSG_TENSOR ? 1 : 3] = 0;
    if (msg.type == STEPAF_MSG_TENSOR) {
        msg.word[3] = run->job->counterpart->ctx->memory.n_regions
                          ? run->job->counterpart->ctx->memory.regions[0]->mem.id
                          : 0;
        msg.word[5] = 0;
    }
    be_honest(ctx, peer, &msg, msg.type == STEPAF_MSG_START && step[4] < 128);
    msg.seq += step[6] & 1 ? step[6] : 0;
    if (step[11] >= 128)
        msg.word[step[11] % STEPAF_MSG_WORDS] = large[step[11] / 16 % 8];
    return msg;
}

/* Messages that may find nothing to do. */
static bool may_be_idle(const struct stepaf_msg *msg)
{
    return msg->type == STEPAF_MSG_CANCEL ||
           (msg->type >= STEPAF_MSG_READY && msg->type != STEPAF_MSG_BYE);
}

static void deliver(struct run *run, const uint8_t *step)
{
    struct stepaf_ctx *ctx = run->job->ctx;
    uint32_t peer = step[2] % PEERS;
    struct stepaf_msg msg = make_msg(run, peer, step);
    bool lost = ctx->peers[peer].lost;
    stepaf_counters_t before = ctx->counters;
    uint64_t digest = state_digest(ctx);
    uint32_t imm;

    if (step[10] & 1 && stepaf_msg_to_imm(&msg, &imm))
        ctx->up.deliver_imm(&ctx->up, ctx->peers[peer].link, imm ^ (step[9] & 1 ? step[8] : 0));
    else
        fake_tell(run->job, peer, &msg);
    uint64_t dropped = ctx->counters.dropped_malformed - before.dropped_malformed +
                       ctx->counters.dropped_stale - before.dropped_stale;
    FUZZ_CHECK(dropped <= 1);
    if (dropped || lost)
        FUZZ_CHECK(state_digest(ctx) == digest);
    else if (!may_be_idle(&msg))
        FUZZ_CHECK(state_digest(ctx) != digest);
}

static void act_as_attention(struct run *run, const uint8_t *step)
{
    stepaf_tensor_t push[PEERS] = {{PUSHED, run->memory + step[6], step[4] % 110},
                                   {PUSHED, run->memory + step[7], step[5] % 110}};
    stepaf_start_params_t params = {.field_mask =
                                        STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_PUSH,
                                    .flags = step[8] & STEPAF_START_SKIP_LOST};
    unsigned which = step[2] % 3;
    stepaf_request_h *kept = &run->requests[step[3] % KEPT];

    switch (step[1] % 4) {
    case 0:
        if (step[9] & 1) {
            params.push = push;
            params.n_push = which == 2 ? PEERS : 1;
        }
        if (!stepaf_start_with(run->plans[which], &params, kept))
            (void)stepaf_request_slot(*kept);
        break;
    case 1:
        (void)stepaf_cancel(*kept);
        break;
    case 2:
        (void)stepaf_test(*kept);
        break;
    default:
        if (step[9] > 200 && !stepaf_plan_destroy(run->plans[which]))
            run->plans[which] = NULL;
        (void)stepaf_request_tensor(*kept, step[4] % 3, NULL);
    }
}

static void act_as_ffn(struct run *run, const uint8_t *step)
{
    stepaf_tensor_t answer[2] = {{PULLED, run->memory, step[4] % 110},
                                 {PULLED, run->memory + 200, step[5] % 110}};
    stepaf_batch_h *kept = &run->batches[step[3] % KEPT];
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};
    int n;

    switch (step[1] % 5) {
    case 0:
        (void)stepaf_recv(run->job->handle, STEPAF_FROM_ANY, 0, 0, kept, 1, &n);
        break;
    case 1:
        if (!stepaf_batch_query(*kept, &info))
            (void)stepaf_respond(*kept, answer, info.n_answers <= 2 ? info.n_answers : 2,
                                 step[6] & 1, NULL);
        break;
    case 2:
        (void)stepaf_release(*kept);
        break;
    case 3:
        (void)stepaf_recv(run->job->handle, STEPAF_FROM_EACH, STEPAF_RECV_SKIP_LOST, 0,
                          run->batches, PEERS, &n);
        break;
    default:
        for (int i = 0; !stepaf_batch_tensor(*kept, i, &tensor); i++)
            memset(tensor.data, 0x5a, tensor.bytes); /* it is the caller's now */
    }
}

static void steer(struct run *run, const uint8_t *step)
{
    struct fake_link *link = fake_link(run->job, step[2] % PEERS);
    struct stepaf_upcalls *up = &run->job->ctx->up;

    switch (step[1] % 6) {
    case 0:
        link->room = step[3] % 4;
        break;
    case 1:
        link->room = FAKE_ENDLESS;
        break;
    case 2:
        link->holds = step[3] & 1;
        break;
    case 3:
        fake_complete(run->job, step[2] % PEERS);
        break;
    case 4:
        link->breaks = step[3] > 200;
        break;
    default:
        if (step[3] > 200)
            up->lost(up, &link->base, "the input says so");
    }
    (void)stepaf_progress(run->job->handle);
}

static void end(struct run *run)
{
    for (uint32_t p = 0; p < PEERS; p++) {
        struct fake_link *link = fake_link(run->job, p);
        fake_complete(run->job, p);
        link->holds = false;
        link->room = FAKE_ENDLESS;
    }
    fake_close(run->job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct run run;

    if (!bytes)
        return 0;
    stepaf_role_t role = data[0] & 1 ? STEPAF_FFN : STEPAF_ATTENTION;
    begin(&run, role);
    for (size_t at = 1; bytes - at >= STEP; at += STEP) {
        const uint8_t *step = data + at;
        if (step[0] % 4 < 2)
            deliver(&run, step);
        else if (step[0] % 4 == 3)
            steer(&run, step);
        else if (role == STEPAF_FFN)
            act_as_ffn(&run, step);
        else
            act_as_attention(&run, step);
        const char *wrong = state_check(run.job->ctx);
        if (wrong)
            fprintf(stderr, "step %zu: %s\n", (at - 1) / STEP, wrong);
        FUZZ_CHECK(!wrong);
    }
    end(&run);
    return 0;
}
