/* SPDX-License-Identifier: Apache-2.0 */
/* The random test: its model of who sends what, and the pieces that both sides share.
 *
 * Everything that an operation carries follows from (seed, attention rank, plan, ordinal), so
 * that every rank knows each byte, size and omission without being told. What a rank may choose
 * freely (the order of answers, how it waits) comes from a generator of its own.
 *
 * In a mesh of lanes each lane has a model of its own, with keys of its own, whose ranks are
 * numbered as if there were no others: so all that follows knows of the mesh only where it calls
 * the library. */
#ifndef STEPAF_TEST_RANDOM_H
#define STEPAF_TEST_RANDOM_H

#include "harness.h"

enum {
    R_ATTN = 8,
    R_FFN = 8,
    R_PUSH = 3,
    R_PULL = 2,
    R_DEPTH = 4,
    R_PHASES = 4,
    R_PLANS = 20,
    R_GUARD = 32,
    R_SCRIBBLE = 0xEE
};

struct r_key {
    uint64_t id;
    stepaf_direction_t direction;
    size_t given; /* max_bytes as declared */
    stepaf_key_params_t params;
    size_t row, max; /* bytes */
    unsigned depth;
    int own_recv; /* FFN ranks: 0 library buffers, 1 stepaf_alloc, 2 registered memory */
};

struct r_plan {
    int first, last; /* phases in which it is used */
    int n_push, n_pull;
    struct r_key push[R_PUSH];
    struct r_key pull[R_FFN][R_PULL];
    size_t planned[R_PUSH]; /* bytes of push tensors */
    unsigned depth;
    uint32_t life;   /* operations after which the plan is destroyed and made again */
    bool scatter;    /* slices instead of broadcast */
    bool one_shot;   /* started by stepaf_push_pull */
    bool many;       /* answers are as many rows as the first push tensor has */
    bool early;      /* made before the commit */
    bool registered; /* attention side: memory of its own instead of stepaf_alloc */
};

struct r_model {
    uint64_t seed;
    int attn, ffn; /* of this rank's lane; ranks of the model count within it */
    int lanes, lane;
    int phases, n_plans;
    size_t small;  /* largest tensor, bytes */
    long long ops; /* of each attention rank */
    struct r_plan plans[R_PLANS];
    uint32_t until[R_ATTN][R_PLANS][R_PHASES]; /* ordinal at which the phase ends */
};

/* What one operation is. */
struct r_op {
    uint32_t ordinal, sequence;
    unsigned slot;
    bool plain;                    /* as planned */
    bool canceled;                 /* the attention rank gives it up */
    bool closing;                  /* last of its plan in the phase: always arrives */
    bool skip[R_FFN], drop[R_FFN]; /* sees no batch; releases it without an answer */
    uint32_t push[R_FFN][R_PUSH], pull[R_FFN][R_PULL]; /* bytes */
};

/* The rank within its group that rank @a rank of the model is. */
static inline int r_real_rank(const struct r_model *model, int rank)
{
    return model->lane + rank * model->lanes;
}

/* ---- random_model.c ---- */

void r_model_make(struct r_model *model);
void r_model_op(const struct r_model *model, int attn, int plan, uint32_t ordinal,
                struct r_op *op_p);
bool r_plan_used(const struct r_model *model, int plan, int phase);
/* Plan of step @a step of attention rank @a attn in @a phase. */
int r_model_step(const struct r_model *model, int attn, int phase, long long step);
long long r_model_steps(const struct r_model *model, int phase);

/* ---- random_bytes.c ---- */

/* A generator for free choices. */
struct r_dice {
    uint64_t state;
};
uint64_t r_throw(struct r_dice *dice);
bool r_chance(struct r_dice *dice, unsigned percent);

/* The bytes of a tensor: @a ffn is -1 where all FFN ranks get the same. */
uint64_t r_stream(const struct r_model *model, uint64_t key, int attn, int ffn, uint32_t ordinal);

/* One block of memory with guarded pieces. Take every piece twice: first to count, then, after
 * r_arena_make, to get it. */
struct r_arena {
    unsigned char *base, *block; /* block: what malloc gave, for registered memory */
    size_t used, bytes;
};
bool r_arena_make(struct hs_job *job, struct r_arena *arena, bool registered);
void r_arena_end(struct hs_job *job, struct r_arena *arena);
unsigned char *r_arena_take(struct r_arena *arena, size_t bytes);
bool r_guarded(const char *what, const unsigned char *piece, size_t bytes);

/* ---- random_attention.c, random_ffn.c ---- */

/* Prepare @a phase: keys, memory and early plans; then the caller commits, then run. */
bool r_attention_prepare(struct hs_job *job, const struct r_model *model, int phase);
bool r_attention_run(struct hs_job *job, const struct r_model *model, int phase);
void r_attention_end(struct hs_job *job, const struct r_model *model);

bool r_ffn_prepare(struct hs_job *job, const struct r_model *model, int phase);
bool r_ffn_run(struct hs_job *job, const struct r_model *model, int phase);
void r_ffn_end(struct hs_job *job);

/* ---- random_answer.c: batches that are held ---- */

struct r_held {
    stepaf_batch_h batch;
    int attn, plan;
    bool answered;
    struct r_op op;
};

bool r_answer_prepare(struct hs_job *job, const struct r_model *model);
/* Answer and release one batch, or only one of these; true if the batch is released. */
bool r_answer_one(struct r_held *held, struct r_dice *dice, bool to_the_end);
/* Answer several held batches of one plan at once; how many, 0 if there are none fit. */
int r_answer_many(struct r_held *held, int n_held, struct r_dice *dice);
bool r_held_intact(const struct r_held *held, const char *when);
void r_answer_end(struct hs_job *job);

#endif
