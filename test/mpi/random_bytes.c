/* SPDX-License-Identifier: Apache-2.0 */
/* The random test's free choices, the number behind each tensor's bytes, guarded memory. */
#include "random.h"

#include <stdlib.h>
#include <string.h>

uint64_t r_throw(struct r_dice *dice)
{
    return hs_mix(dice->state++);
}

bool r_chance(struct r_dice *dice, unsigned percent)
{
    return r_throw(dice) % 100 < percent;
}

uint64_t r_stream(const struct r_model *model, uint64_t key, int attn, int ffn, uint32_t ordinal)
{
    uint64_t who = (uint64_t)(unsigned)attn << 32 | (unsigned)(ffn + 1);
    return hs_mix(hs_mix(hs_mix(model->seed ^ key) ^ who) ^ ordinal);
}

bool r_arena_make(struct hs_job *job, struct r_arena *arena, bool registered)
{
    size_t bytes = arena->used + 2 * R_GUARD;

    arena->bytes = bytes;
    arena->used = 0;
    if (!registered)
        return HS_OK(stepaf_alloc(job->ctx, bytes, STEPAF_MEM_HOST, (void **)&arena->base));
    arena->block = malloc(bytes + 8); /* an odd start: nothing promises alignment */
    if (arena->block == NULL)
        return HS_FAILED("no memory for %zu bytes", bytes);
    arena->base = arena->block + 3;
    return HS_OK(stepaf_register(job->ctx, arena->base, bytes));
}

void r_arena_end(struct hs_job *job, struct r_arena *arena)
{
    if (arena->base != NULL && arena->block == NULL)
        HS_OK(stepaf_free(job->ctx, arena->base));
    if (arena->base != NULL && arena->block != NULL)
        HS_OK(stepaf_deregister(job->ctx, arena->base));
    free(arena->block);
    *arena = (struct r_arena){0};
}

unsigned char *r_arena_take(struct r_arena *arena, size_t bytes)
{
    unsigned char *piece = NULL;
    /* Every third piece begins at an odd address. */
    size_t skew = (arena->used / 64) % 3 == 0 ? 1 : 0;

    if (arena->base != NULL) {
        piece = arena->base + arena->used + skew + R_GUARD;
        memset(piece - R_GUARD, HS_POISON, R_GUARD);
        memset(piece + bytes, HS_POISON, R_GUARD);
    }
    arena->used += (skew + bytes + 2 * R_GUARD + 63) & ~(size_t)63;
    return piece;
}

bool r_guarded(const char *what, const unsigned char *piece, size_t bytes)
{
    return hs_verify_poison(what, piece - R_GUARD, R_GUARD) &&
           hs_verify_poison(what, piece + bytes, R_GUARD);
}
