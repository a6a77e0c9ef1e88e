/* SPDX-License-Identifier: Apache-2.0 */
#include "member_streams.h"

#include <stepaf/stream.h>

#include "mpi/machine.h"

enum {
    DEPTH = MEMBER_STREAMS_DEPTH,
    LARGE = 40000, /* pushed, and taken by a kernel of its own */
    SMALL = 60,    /* pushed, in the head of its mailbox */
    ANSWER = 30000,
    N_PUSH = 2,
    KEY_LARGE = 11,
    KEY_SMALL,
    KEY_ANSWER,
    UNTOUCHED = 77, /* what places hold that nothing is to come to */
    PASS_MS = 30000
};

static const size_t push_bytes[N_PUSH] = {LARGE, SMALL};

static bool is_attention(const struct member_streams *streams)
{
    return streams->job->role == STEPAF_ATTENTION;
}

void member_streams_begin(const struct member_streams *streams)
{
    HS_TRUE(machine_begin(streams->job));
}

void member_streams_end(struct hs_job *job)
{
    machine_end(job);
}

/* ---- bytes ---- */

static unsigned char scratch[LARGE]; /* the most that is copied at once */

/* As hs_fill and hs_verify, in the GPU's memory. */
static void fill(void *at, size_t bytes, uint64_t seed)
{
    hs_fill(scratch, bytes, seed);
    HS_TRUE(machine_write(at, scratch, bytes));
}

static bool verify(const char *what, const void *at, size_t bytes, uint64_t seed)
{
    return HS_TRUE(machine_read(scratch, at, bytes)) && hs_verify(what, scratch, bytes, seed);
}

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

static void fill_pushes(const struct member_streams *streams, uint64_t op)
{
    unsigned char *at = streams->source;

    for (int i = 0; i < N_PUSH; at += push_bytes[i++])
        fill(at, push_bytes[i], push_seed(streams->job->index, i, op));
}

static void fill_answers(const struct member_streams *streams, uint64_t n, uint64_t op)
{
    struct hs_job *job = streams->job;

    for (int p = 0; p < job->peers; p++)
        fill(answer_at(streams->source, p, n), ANSWER,
             answer_seed(stepaf_peer_rank(job->ctx, p), job->index, op));
}

void member_streams_fill(const struct member_streams *streams, uint64_t n, uint64_t op)
{
    if (is_attention(streams))
        fill_pushes(streams, op);
    else
        fill_answers(streams, n, op);
}

/* Tensor @a i of peer @a p of what has come, in slot n. Other bytes are left there, which a peer
 * that is out does not touch. */
static bool look_at(const struct member_streams *streams, int p, int i, uint64_t n, uint64_t seed)
{
    int each = is_attention(streams) ? 1 : N_PUSH;
    const uint32_t *all = stepaf_plan_bytes(streams->plan, n % DEPTH);
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    uint32_t landed = 0;

    if (!HS_TRUE(all != NULL) ||
        !HS_TRUE(machine_read(&landed, &all[p * each + i], sizeof(landed))) ||
        !HS_OK(stepaf_plan_tensor(streams->plan, n % DEPTH, p, i, &info)))
        return false;
    size_t bytes = is_attention(streams) ? ANSWER : push_bytes[i];
    if (streams->is_out[p]) {
        seed = UNTOUCHED;
        HS_INT(landed, ==, 0);
    } else if (!HS_INT(landed, ==, bytes)) {
        return false;
    }
    bool is_right = verify("a tensor", info.data, bytes, seed);
    fill(info.data, bytes, UNTOUCHED);
    return is_right;
}

bool member_streams_mark(const struct member_streams *streams)
{
    int each = is_attention(streams) ? 1 : N_PUSH;
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    for (int p = 0; p < streams->job->peers; p++)
        for (int i = 0; i < each && (is_attention(streams) || streams->is_out[p]); i++)
            for (uint64_t n = 0; n < DEPTH; n++) {
                if (!HS_OK(stepaf_plan_tensor(streams->plan, n, p, i, &info)))
                    return false;
                fill(info.data, is_attention(streams) ? ANSWER : push_bytes[i], UNTOUCHED);
            }
    return true;
}

static bool look_at_answers(const struct member_streams *streams, uint64_t n, uint64_t op)
{
    struct hs_job *job = streams->job;
    bool is_right = true;

    for (int p = 0; p < job->peers && is_right; p++)
        is_right =
            look_at(streams, p, 0, n, answer_seed(job->index, stepaf_peer_rank(job->ctx, p), op));
    return is_right;
}

static bool look_at_pushes(const struct member_streams *streams, uint64_t n, uint64_t op)
{
    struct hs_job *job = streams->job;
    bool is_right = true;

    for (int p = 0; p < job->peers && is_right; p++)
        for (int i = 0; i < N_PUSH && is_right; i++)
            is_right = look_at(streams, p, i, n, push_seed(stepaf_peer_rank(job->ctx, p), i, op));
    return is_right;
}

bool member_streams_look(const struct member_streams *streams, uint64_t n, uint64_t op)
{
    return is_attention(streams) ? look_at_answers(streams, n, op) : look_at_pushes(streams, n, op);
}

/* ---- operations ---- */

bool member_streams_pass(void)
{
    return machine_pass();
}

/* Each member that is in has answered; of others the request says that they are lost. */
static bool look_at_request(const struct member_streams *streams, stepaf_request_h request)
{
    for (int p = 0; p < streams->job->peers; p++)
        HS_INT(stepaf_request_peer(request, stepaf_peer_rank(streams->job->ctx, p)), ==,
               streams->is_out[p] ? STEPAF_ERR_PEER_LOST : STEPAF_OK);
    return !hs_failed();
}

static bool ask(struct member_streams *streams, uint64_t n, uint64_t op)
{
    stepaf_request_h request = NULL;
    bool is_asked = n % 3 == 1;

    fill_pushes(streams, op);
    if (!HS_OK(stepaf_start_on_stream(streams->plan, NULL, machine_stream(),
                                      is_asked ? &request : NULL)) ||
        !HS_OK(stepaf_wait_on_stream(streams->plan, machine_stream())))
        return false;
    if (is_asked && (!HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)) ||
                     !look_at_request(streams, request)))
        return false;
    return member_streams_pass() && HS_OK(stepaf_plan_status(streams->plan)) &&
           look_at_answers(streams, n, op);
}

static bool serve(struct member_streams *streams, uint64_t n, uint64_t op)
{
    if (!HS_OK(stepaf_recv_on_stream(streams->plan, machine_stream())) || !member_streams_pass() ||
        !HS_OK(stepaf_plan_status(streams->plan)) || !look_at_pushes(streams, n, op))
        return false;
    fill_answers(streams, n, op);
    return HS_OK(stepaf_respond_on_stream(streams->plan, NULL, machine_stream())) &&
           member_streams_pass();
}

bool member_streams_operate(struct member_streams *streams, uint64_t n, uint64_t op)
{
    return is_attention(streams) ? ask(streams, n, op) : serve(streams, n, op);
}

bool member_streams_enqueue(struct member_streams *streams)
{
    if (is_attention(streams))
        return HS_OK(stepaf_start_on_stream(streams->plan, NULL, machine_stream(), NULL)) &&
               HS_OK(stepaf_wait_on_stream(streams->plan, machine_stream()));
    return HS_OK(stepaf_recv_on_stream(streams->plan, machine_stream())) &&
           HS_OK(stepaf_respond_on_stream(streams->plan, NULL, machine_stream()));
}

/* ---- what there is to exchange ---- */

static bool declare(const struct member_streams *streams, uint64_t key,
                    stepaf_direction_t direction, size_t bytes)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .depth = DEPTH,
                                  .mem_kind = STEPAF_MEM_CUDA};

    return HS_OK(stepaf_key_declare(streams->job->ctx, key, direction, bytes, &params));
}

bool member_streams_prepare(struct member_streams *streams)
{
    struct hs_job *job = streams->job;
    const uint64_t keys[N_PUSH] = {KEY_LARGE, KEY_SMALL};
    stepaf_tensor_t push[N_PUSH], pull[HS_MAX_RANKS];
    size_t answers = (size_t)job->peers * DEPTH * ANSWER;
    void *place = NULL;

    if (!declare(streams, KEY_LARGE, STEPAF_PUSH, LARGE) ||
        !declare(streams, KEY_SMALL, STEPAF_PUSH, SMALL) ||
        !declare(streams, KEY_ANSWER, STEPAF_PULL, ANSWER) ||
        !HS_OK(stepaf_alloc(job->ctx, LARGE + SMALL + 4 + answers, STEPAF_MEM_CUDA, &place)))
        return false;
    streams->source = place;
    streams->target = streams->source + LARGE + SMALL + 4; /* a multiple of 16 */
    if (!is_attention(streams))
        streams->source = streams->target;
    push[0] = (stepaf_tensor_t){KEY_LARGE, streams->source, LARGE};
    push[1] = (stepaf_tensor_t){KEY_SMALL, streams->source + LARGE, SMALL};
    for (int p = 0; p < job->peers; p++)
        pull[p] = (stepaf_tensor_t){KEY_ANSWER, answer_at(streams->target, p, 0), ANSWER};
    if (is_attention(streams))
        return HS_OK(stepaf_plan_create(job->ctx, push, N_PUSH, pull, job->peers,
                                        STEPAF_PLAN_STREAM, &streams->plan));
    return HS_OK(stepaf_plan_create_ffn(job->ctx, keys, N_PUSH, pull, job->peers,
                                        STEPAF_PLAN_STREAM, &streams->plan));
}
