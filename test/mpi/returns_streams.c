/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of plans on streams, on a GPU that is made of memory (test/unit/cpu_device): every tensor has other
 * bytes each time, and each is looked at. Behind the death of a peer one is enqueued that needs it. With --graphs 1 a
 * graph of the first epoch is replayed in later ones: it does nothing. */
#include <string.h>

#include <stepaf/stream.h>

#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "returns.h"

enum {
    OPS = 6,
    DEPTH = 2,
    LARGE = 40000, /* pushed, and taken by a kernel of its own */
    SMALL = 60,    /* pushed, in the head of its mailbox */
    ANSWER = 30000,
    N_PUSH = 2,
    KEY_LARGE = 11,
    KEY_SMALL,
    KEY_ANSWER,
    GRAPH_OP = 999999,
    UNTOUCHED = 77 /* what places hold that nothing is to come to */
};

static const size_t push_bytes[N_PUSH] = {LARGE, SMALL};

/* A process is one rank. */
static struct {
    stepaf_plan_h plan;
    unsigned char
        *source; /* attention: what is pushed; FFN: answers, peer by peer: DEPTH of them */
    unsigned char *target; /* attention: answers in the same way */
    int stream;            /* its address names one */
    int round, stage;      /* of the last operations: before a death, after it, after the return */
    int n_pieces;          /* of the GPU's memory, once nothing grows any more */
    bool has_graph;
} streams;

static bool is_attention(const struct rank *rank)
{
    return rank->job->role == STEPAF_ATTENTION;
}

void returns_begin(const struct rank *rank)
{
    (void)rank;
    cpu_device_begin();
    cpu_device.runs = true;
    cpu_queue_begin();
}

void returns_end(struct rank *rank)
{
    cpu_queue_end();
    hs_close(rank->job);
    HS_INT(cpu_device.n_held, ==, 0);
    HS_INT(cpu_device_count(), ==, 0);
    cpu_device_end();
}

/* ---- bytes ---- */

static unsigned char *answer_at(unsigned char *base, int p, uint64_t n)
{
    return base + ((size_t)p * DEPTH + n % DEPTH) * ANSWER;
}

/* Pushes are the same for all FFN ranks. */
static uint64_t push_seed(int attention, int i, uint64_t op)
{
    return hs_mix((uint64_t)attention * 1000003 + op) + (uint64_t)i * 7919;
}

static uint64_t answer_seed(int attention, int ffn, uint64_t op)
{
    return hs_mix((uint64_t)attention * 1000003 + op) + 500000 + (uint64_t)ffn * 77;
}

static void fill_pushes(const struct rank *rank, uint64_t op)
{
    unsigned char *at = streams.source;

    for (int i = 0; i < N_PUSH; at += push_bytes[i++])
        hs_fill(at, push_bytes[i], push_seed(rank->job->index, i, op));
}

/* Whether peer @a p is one that the epoch goes on without. */
static bool is_out(const struct rank *rank, int p)
{
    stepaf_group_t group = is_attention(rank) ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;
    int world = stepaf_world_rank(rank->job->ctx, group, stepaf_peer_rank(rank->job->ctx, p));

    return streams.stage == 1 && returns_dies_in(rank, rank->round, world);
}

/* Tensor @a i of peer @a p of what has come, in slot n. Other bytes are left there, which a peer that is out does not
 * touch. */
static bool look_at(const struct rank *rank, int p, int i, uint64_t n, uint64_t seed)
{
    int each = is_attention(rank) ? 1 : N_PUSH;
    const uint32_t *landed = stepaf_plan_bytes(streams.plan, n % DEPTH);
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    if (!HS_TRUE(landed != NULL) ||
        !HS_OK(stepaf_plan_tensor(streams.plan, n % DEPTH, p, i, &info)))
        return false;
    size_t bytes = is_attention(rank) ? ANSWER : push_bytes[i];
    if (is_out(rank, p)) {
        seed = UNTOUCHED;
        HS_INT(landed[p * each + i], ==, 0);
    } else if (!HS_INT(landed[p * each + i], ==, bytes)) {
        return false;
    }
    bool is_right = hs_verify("a tensor", info.data, bytes, seed);
    hs_fill(info.data, bytes, UNTOUCHED);
    return is_right;
}

static bool look_at_answers(const struct rank *rank, uint64_t n, uint64_t op)
{
    struct hs_job *job = rank->job;
    bool is_right = true;

    for (int p = 0; p < job->peers && is_right; p++)
        is_right =
            look_at(rank, p, 0, n, answer_seed(job->index, stepaf_peer_rank(job->ctx, p), op));
    return is_right;
}

static bool look_at_pushes(const struct rank *rank, uint64_t n, uint64_t op)
{
    bool is_right = true;

    for (int p = 0; p < rank->job->peers && is_right; p++)
        for (int i = 0; i < N_PUSH && is_right; i++)
            is_right =
                look_at(rank, p, i, n, push_seed(stepaf_peer_rank(rank->job->ctx, p), i, op));
    return is_right;
}

static void fill_answers(const struct rank *rank, uint64_t n, uint64_t op)
{
    struct hs_job *job = rank->job;

    for (int p = 0; p < job->peers; p++)
        hs_fill(answer_at(streams.source, p, n), ANSWER,
                answer_seed(stepaf_peer_rank(job->ctx, p), job->index, op));
}

/* ---- operations ---- */

static bool pass(void)
{
    return HS_TRUE(cpu_queue_sync((unsigned)(RETURNS_LIMIT_S * 1000 * hs_slow())));
}

/* Each member that is in has answered; of others the request says that they are lost. */
static bool look_at_request(const struct rank *rank, stepaf_request_h request)
{
    for (int p = 0; p < rank->job->peers; p++)
        HS_INT(stepaf_request_peer(request, stepaf_peer_rank(rank->job->ctx, p)), ==,
               is_out(rank, p) ? STEPAF_ERR_PEER_LOST : STEPAF_OK);
    return !hs_failed();
}

static bool ask(struct rank *rank, uint64_t n, uint64_t op)
{
    stepaf_request_h request = NULL;
    bool is_asked = n % 3 == 1;

    fill_pushes(rank, op);
    if (!HS_OK(stepaf_start_on_stream(streams.plan, NULL, &streams.stream,
                                      is_asked ? &request : NULL)) ||
        !HS_OK(stepaf_wait_on_stream(streams.plan, &streams.stream)))
        return false;
    if (is_asked &&
        (!HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)) || !look_at_request(rank, request)))
        return false;
    return pass() && HS_OK(stepaf_plan_status(streams.plan)) && look_at_answers(rank, n, op);
}

static bool serve(struct rank *rank, uint64_t n, uint64_t op)
{
    if (!HS_OK(stepaf_recv_on_stream(streams.plan, &streams.stream)) || !pass() ||
        !HS_OK(stepaf_plan_status(streams.plan)) || !look_at_pushes(rank, n, op))
        return false;
    fill_answers(rank, n, op);
    return HS_OK(stepaf_respond_on_stream(streams.plan, NULL, &streams.stream)) && pass();
}

/* As many operations as there are slots, as a graph; then it is replayed. */
static bool capture(struct rank *rank)
{
    cpu_device.capturing = true;
    cpu_queue_record();
    for (uint64_t n = 0; n < DEPTH; n++) {
        bool is_done =
            is_attention(rank)
                ? HS_OK(stepaf_start_on_stream(streams.plan, NULL, &streams.stream, NULL)) &&
                      HS_OK(stepaf_wait_on_stream(streams.plan, &streams.stream))
                : HS_OK(stepaf_recv_on_stream(streams.plan, &streams.stream)) &&
                      HS_OK(stepaf_respond_on_stream(streams.plan, NULL, &streams.stream));
        if (!is_done)
            return false;
    }
    cpu_device.capturing = false;
    streams.has_graph = true;
    fill_pushes(rank, GRAPH_OP);
    for (uint64_t n = 0; n < DEPTH && !is_attention(rank); n++)
        fill_answers(rank, n, GRAPH_OP);
    cpu_queue_replay(1, 0);
    if (!pass())
        return false;
    bool is_right = true;
    for (uint64_t n = 0; n < DEPTH && is_right; n++)
        is_right = is_attention(rank) ? look_at_answers(rank, n, GRAPH_OP)
                                      : look_at_pushes(rank, n, GRAPH_OP);
    return is_right;
}

bool returns_work(struct rank *rank, bool is_whole)
{
    bool is_same = streams.round == rank->round + 1;

    hs_step("operations");
    streams.round = rank->round + 1;
    streams.stage = !is_whole ? 1 : is_same || rank->is_new ? 2 : 0;
    if (streams.has_graph) {
        cpu_queue_replay(1, 0);
        if (!pass())
            return false;
    }
    for (uint64_t n = 0; n < OPS; n++) {
        uint64_t op = ((uint64_t)rank->round * 3 + (uint64_t)streams.stage) * 100 + n;
        if (!(is_attention(rank) ? ask(rank, n, op) : serve(rank, n, op)))
            return false;
        if (!n && rank->is_new)
            member_ops_note_most(rank->job, STAMP_FIRST_USE,
                                 hs_now_ns() - atomic_load(&rank->job->shared->stamp[STAMP_INIT]));
    }
    if (hs_option_int(rank->job, "--graphs", 0) && !rank->round && !streams.stage)
        return capture(rank);
    if (streams.stage != 2 || rank->round < 1)
        return !hs_failed();
    if (!streams.n_pieces)
        streams.n_pieces = cpu_device_count();
    return HS_INT(cpu_device_count(), ==, streams.n_pieces);
}

bool returns_work_in_vain(struct rank *rank)
{
    int64_t until_ns = hs_now_ns() + RETURNS_LIMIT_S * 1000000000LL * hs_slow();
    stepaf_status_t status = STEPAF_OK;
    bool is_needed = false;

    streams.stage = 1;
    for (int p = 0; p < rank->job->peers; p++)
        is_needed = is_needed || is_out(rank, p);
    if (!is_needed)
        return true;
    hs_step("an operation in vain");
    if (is_attention(rank)) {
        status = stepaf_start_on_stream(streams.plan, NULL, &streams.stream, NULL);
        if (!status)
            status = stepaf_wait_on_stream(streams.plan, &streams.stream);
    } else {
        status = stepaf_recv_on_stream(streams.plan, &streams.stream);
    }
    while (!status && hs_now_ns() < until_ns && !hs_hopeless(rank->job)) {
        status = stepaf_plan_status(streams.plan);
        hs_sleep_us(200);
    }
    return HS_INT(status, ==, STEPAF_ERR_PEER_LOST) &&
           HS_TRUE(returns_dies_in(rank, rank->round, stepaf_last_error()->peer_world_rank)) &&
           pass();
}

/* ---- what there is to exchange ---- */

static bool declare(struct rank *rank, uint64_t key, stepaf_direction_t direction, size_t bytes)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .depth = DEPTH,
                                  .mem_kind = STEPAF_MEM_CUDA};

    return HS_OK(stepaf_key_declare(rank->job->ctx, key, direction, bytes, &params));
}

bool returns_prepare(struct rank *rank)
{
    struct hs_job *job = rank->job;
    const uint64_t keys[N_PUSH] = {KEY_LARGE, KEY_SMALL};
    stepaf_tensor_t push[N_PUSH], pull[HS_MAX_RANKS];
    size_t answers = (size_t)job->peers * DEPTH * ANSWER;
    void *place = NULL;

    if (!declare(rank, KEY_LARGE, STEPAF_PUSH, LARGE) ||
        !declare(rank, KEY_SMALL, STEPAF_PUSH, SMALL) ||
        !declare(rank, KEY_ANSWER, STEPAF_PULL, ANSWER) ||
        !HS_OK(stepaf_alloc(job->ctx, LARGE + SMALL + 4 + answers, STEPAF_MEM_CUDA, &place)))
        return false;
    streams.source = place;
    streams.target = streams.source + LARGE + SMALL + 4; /* a multiple of 16 */
    if (!is_attention(rank))
        streams.source = streams.target;
    push[0] = (stepaf_tensor_t){KEY_LARGE, streams.source, LARGE};
    push[1] = (stepaf_tensor_t){KEY_SMALL, streams.source + LARGE, SMALL};
    for (int p = 0; p < job->peers; p++)
        pull[p] = (stepaf_tensor_t){KEY_ANSWER, answer_at(streams.target, p, 0), ANSWER};
    if (is_attention(rank))
        return HS_OK(stepaf_plan_create(job->ctx, push, N_PUSH, pull, job->peers,
                                        STEPAF_PLAN_STREAM, &streams.plan));
    return HS_OK(stepaf_plan_create_ffn(job->ctx, keys, N_PUSH, pull, job->peers,
                                        STEPAF_PLAN_STREAM, &streams.plan));
}
