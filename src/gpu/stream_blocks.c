/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans: choose how many blocks and threads the kernels have, and which blocks work for
 * which tensor. */
#include <stdlib.h>

#include "core/plan.h"
#include "gpu/stream.h"

enum {
    GATE_THREADS = 512, /* as in kernels.cu */
    COPY_SHARE = 1024   /* bytes that a block of ZCOPY copies in one go */
};

/* Several plans in flight at the same time are faster with fewer blocks: half of them each for two
 * plans, a quarter for three and more. */
uint32_t stepaf_stream_blocks(const struct stepaf_ctx *ctx)
{
    uint32_t n_plans = 0; /* 1 to 3 in the end: the caller has one */

    if (ctx->env.cuda_blocks)
        return (uint32_t)ctx->env.cuda_blocks;
    for (uint32_t i = 0; i < ctx->tables.plans.n && n_plans < 3; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        n_plans += plan && plan->stream;
    }
    return STEPAF_LAUNCH_BLOCKS >> (n_plans - 1);
}

/* Few pieces are not worth a kernel of their own. */
uint32_t stepaf_stream_set_gate(struct stepaf_kernel_args *args, bool takes)
{
    uint64_t groups = 0, threads;

    for (uint32_t i = 0; i < args->n_tensors; i++)
        if (args->tensors[i].proto == STEPAF_PROTO_LL)
            groups += stepaf_piece_groups(args->tensors[i].bytes);
    args->gate_takes = takes && groups && groups <= STEPAF_GATE_GROUPS;
    threads = args->n_tensors * 8ull;
    if (args->gate_takes && threads < groups * STEPAF_WARP)
        threads = groups * STEPAF_WARP;
    if (threads > GATE_THREADS)
        threads = GATE_THREADS;
    return (uint32_t)(threads + STEPAF_WARP - 1) / STEPAF_WARP * STEPAF_WARP;
}

static uint64_t chunks_of(const struct stepaf_kernel_tensor *tensor)
{
    return stepaf_proto_has_chunks(tensor->proto)
               ? ((uint64_t)tensor->bytes + tensor->chunk - 1) / tensor->chunk
               : 0;
}

static uint64_t most_chunk_blocks(uint8_t proto, bool sending)
{
    if (proto == STEPAF_PROTO_PARTS)
        return sending ? STEPAF_PART_SENDERS : STEPAF_PART_TAKERS;
    return sending ? STEPAF_CHUNK_SENDERS : STEPAF_CHUNK_TAKERS;
}

/* Return the tensor's share of the blocks that are best for all chunks, or all parts, of a launch
 * together. */
static uint64_t chunk_blocks(const struct stepaf_kernel_args *args,
                             const struct stepaf_kernel_tensor *tensor, bool sending)
{
    uint64_t limit = most_chunk_blocks(tensor->proto, sending), all = 0;

    for (uint32_t i = 0; i < args->n_tensors; i++)
        all += args->tensors[i].proto == tensor->proto ? chunks_of(&args->tensors[i]) : 0;
    return all <= limit ? chunks_of(tensor) : chunks_of(tensor) * limit / all;
}

static uint32_t blocks_wanted(const struct stepaf_kernel_args *args,
                              const struct stepaf_kernel_tensor *tensor, bool sending)
{
    uint64_t n = 1;

    if (!tensor->head)
        return 0; /* nothing goes there */
    if (sending ? tensor->copied : tensor->proto == STEPAF_PROTO_LL && args->gate_takes)
        return 0; /* done by a copy engine, or by the gate */
    if (tensor->proto == STEPAF_PROTO_LL)
        n = stepaf_piece_groups(tensor->bytes);
    else if (stepaf_proto_has_chunks(tensor->proto))
        n = chunk_blocks(args, tensor, sending);
    else if (tensor->proto == STEPAF_PROTO_BCOPY ||
             (sending && tensor->proto == STEPAF_PROTO_ZCOPY))
        n = ((uint64_t)tensor->bytes + COPY_SHARE - 1) / COPY_SHARE;
    else if (!sending)
        return 0; /* the gate sees all of it */
    return n > STEPAF_LAUNCH_BLOCKS ? STEPAF_LAUNCH_BLOCKS : n ? (uint32_t)n : 1;
}

static int by_bytes(const void *a, const void *b)
{
    const struct stepaf_kernel_tensor *const *one = a;
    const struct stepaf_kernel_tensor *const *other = b;

    return ((*one)->bytes > (*other)->bytes) - ((*one)->bytes < (*other)->bytes);
}

/* Share out @a limit blocks, at least one for each tensor that needs any. The smallest tensors get
 * the first blocks, so that no head comes late. Returns the number of blocks. */
uint32_t stepaf_stream_distribute(struct stepaf_kernel_args *args, bool sending, uint32_t limit)
{
    struct stepaf_kernel_tensor *order[STEPAF_KERNEL_TENSORS];
    uint32_t sum = 0, first = 0, n_wanting = 0;

    for (uint32_t i = 0; i < args->n_tensors; i++) {
        uint32_t wanted = blocks_wanted(args, &args->tensors[i], sending);
        n_wanting += wanted > 0;
        sum += wanted;
        order[i] = &args->tensors[i];
    }
    qsort(order, args->n_tensors, sizeof(order[0]), by_bytes);
    if (limit < n_wanting)
        limit = n_wanting;
    for (uint32_t i = 0; i < args->n_tensors; i++) {
        struct stepaf_kernel_tensor *tensor = order[i];
        uint32_t n = blocks_wanted(args, tensor, sending);
        if (sum > limit && n > 1) /* in proportion to what is left when each tensor has one */
            n = 1 + (uint32_t)((uint64_t)(n - 1) * (limit - n_wanting) / (sum - n_wanting));
        tensor->first = (uint16_t)first;
        tensor->n = (uint16_t)n;
        first += n;
    }
    return first;
}

static bool is_aligned(const struct stepaf_kernel_args *args)
{
    uintptr_t all = 0;

    for (uint32_t i = 0; i < args->n_tensors; i++)
        all |= (uintptr_t)args->tensors[i].data | (uintptr_t)args->tensors[i].body;
    return all % 16 == 0;
}

void stepaf_stream_touch(struct stepaf_kernel_args *args)
{
    args->aligned = is_aligned(args);
}
