/* SPDX-License-Identifier: Apache-2.0 */
/* Verified operations: before each, sources get bytes that are unique to the operation, and the
 * received bytes are compared on the GPU, in the same stream and, if used, the same graph. The
 * seeds are those of host memory's check, but the number of the operation is counted on the GPU. */
#include <stdlib.h>
#include <string.h>

#include "perf/check.h"
#include "perf/fail.h"
#include "perf/gpu/ours.h"

/* Bytes that the check of a rank needs in GPU memory. */
enum { COUNT_BYTES = (1 + PERF_GPU_STREAMS) * sizeof(uint64_t) };

static int add(struct perf_gpu_pieces *pieces, void *data, uint64_t pitch, uint64_t bytes,
               const struct perf_origin *origin)
{
    if (pieces->n == PERF_GPU_PIECES)
        return perf_fail("--check on GPUs is for at most %d tensors of all peers of a microbatch",
                         PERF_GPU_PIECES);
    pieces->pieces[pieces->n++] = (struct perf_gpu_piece){data, pitch, bytes, perf_seed(origin)};
    return 0;
}

/* Find where tensor @a index of peer @a peer lands in slot 0, and the distance to the next slot:
 * the library reports the addresses, and slots must be evenly spaced. */
static int find_landing(const struct perf_gpu_lib *lib, unsigned m, int peer, int index,
                        uint8_t **data_p, uint64_t *pitch_p)
{
    uint8_t *first = NULL;
    uint64_t pitch = 0;

    for (unsigned slot = 0; slot < lib->c->depth; slot++) {
        stepaf_tensor_info_t info = {.size = sizeof(info)};
        stepaf_status_t status = stepaf_plan_tensor(lib->plans[m], slot, peer, index, &info);

        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_plan_tensor");
        if (slot == 0)
            first = info.data;
        if (slot == 1)
            pitch = (uint64_t)((uint8_t *)info.data - first);
        if ((uint8_t *)info.data != first + slot * pitch)
            return perf_fail("slots of a tensor are not evenly apart");
    }
    *data_p = first;
    *pitch_p = pitch;
    return 0;
}

/* The same for the numbers of bytes that have landed. */
static int find_landed(const struct perf_gpu_lib *lib, unsigned m, struct perf_gpu_pieces *pieces)
{
    for (unsigned slot = 0; slot < lib->c->depth; slot++) {
        const uint32_t *landed = stepaf_plan_bytes(lib->plans[m], slot);

        if (landed == NULL)
            return perf_fail("stepaf_plan_bytes gives nothing for slot %u", slot);
        if (slot == 0)
            pieces->landed = landed;
        if (slot == 1)
            pieces->landed_pitch = (uint64_t)(landed - pieces->landed);
        if (landed != pieces->landed + slot * pieces->landed_pitch)
            return perf_fail("slots of stepaf_plan_bytes are not evenly apart");
    }
    return 0;
}

static int list_attention(struct perf_gpu_lib *lib, unsigned m, struct perf_gpu_proof *proof)
{
    const struct perf_case *c = lib->c;
    struct perf_origin origin = {.attn = lib->gpu->place->index, .ffn = -1, .place = m};

    for (int t = 0; t < c->n_push; t++) {
        origin.tensor = t;
        if (add(&proof->out, perf_buffers_push(&lib->buffers, m, t), 0, c->push[t].bytes,
                &origin) != 0)
            return -1;
    }
    origin.tensor = -1;
    for (int f = 0; f < c->ffn; f++) {
        uint8_t *data;
        uint64_t pitch;

        origin.ffn = f;
        if (find_landing(lib, m, f, 0, &data, &pitch) != 0 ||
            add(&proof->in, data, pitch, c->pull.bytes, &origin) != 0)
            return -1;
    }
    return 0;
}

static int list_ffn(struct perf_gpu_lib *lib, unsigned m, struct perf_gpu_proof *proof)
{
    const struct perf_case *c = lib->c;

    for (int a = 0; a < c->attn; a++) {
        struct perf_origin origin = {.attn = a, .ffn = -1, .place = m};

        for (int t = 0; t < c->n_push; t++) {
            uint8_t *data;
            uint64_t pitch;

            origin.tensor = t;
            if (find_landing(lib, m, a, t, &data, &pitch) != 0 ||
                add(&proof->in, data, pitch, c->push[t].bytes, &origin) != 0)
                return -1;
        }
        origin.ffn = lib->gpu->place->index;
        origin.tensor = -1;
        if (add(&proof->out, perf_gpu_answer(&lib->buffers, a, m), c->pull.bytes, c->pull.bytes,
                &origin) != 0)
            return -1;
    }
    proof->out.corrupt = lib->gpu->options->corrupt;
    return 0;
}

/* Run the kernels once, so that they are on the GPU before anything waits there. */
static int launch_once(struct perf_gpu_lib *lib)
{
    cudaStream_t stream = lib->gpu->streams[0];
    struct perf_gpu_pieces all = lib->proofs[0].out;

    all.wrong = lib->counts;
    if (perf_gpu_try(perf_gpu_launch_fill(&all, stream)) != 0 ||
        perf_gpu_try(perf_gpu_launch_verify(&all, stream)) != 0 ||
        perf_gpu_try(perf_gpu_launch_turn(lib->counts + PERF_GPU_STREAMS, stream)) != 0 ||
        perf_gpu_drain(lib->gpu, stream, lib->ctx, "the kernels of --check") != 0)
        return -1;
    if (perf_gpu_try(cudaMemsetAsync(lib->counts, 0, COUNT_BYTES, stream)) != 0)
        return -1;
    return perf_gpu_drain(lib->gpu, stream, lib->ctx, "clearing the counts of --check");
}

int perf_gpu_proof_open(struct perf_gpu_lib *lib)
{
    int attention = lib->gpu->place->role == STEPAF_ATTENTION;
    void *counts;

    lib->proofs = calloc(lib->c->microbatches, sizeof(*lib->proofs));
    if (lib->proofs == NULL)
        return perf_fail("out of memory");
    if (perf_gpu_try(cudaMalloc(&counts, COUNT_BYTES)) != 0)
        return -1;
    lib->counts = counts;
    if (perf_gpu_try(cudaMemset(counts, 0, COUNT_BYTES)) != 0 ||
        perf_gpu_try(cudaDeviceSynchronize()) != 0)
        return -1;
    for (unsigned m = 0; m < lib->c->microbatches; m++) {
        struct perf_gpu_proof *proof = &lib->proofs[m];

        proof->out.turn = proof->in.turn = lib->counts + 1 + m;
        proof->out.wrong = proof->in.wrong = lib->counts;
        /* Pushes have one source for all slots, answers one each. */
        proof->out.depth = attention ? 1 : lib->c->depth;
        proof->in.depth = lib->c->depth;
        if ((attention ? list_attention : list_ffn)(lib, m, proof) != 0 ||
            (proof->in.n > 0 && find_landed(lib, m, &proof->in) != 0))
            return -1;
    }
    return launch_once(lib);
}

void perf_gpu_proof_close(struct perf_gpu_lib *lib)
{
    cudaFree(lib->counts);
    free(lib->proofs);
}

int perf_gpu_proof_read(const struct perf_gpu_lib *lib, uint64_t *wrong_bytes_p)
{
    if (perf_gpu_try(cudaMemcpy(wrong_bytes_p, lib->counts, sizeof(*wrong_bytes_p),
                                cudaMemcpyDeviceToHost)) != 0)
        return -1;
    return 0;
}

/* One operation in flight per microbatch: all slots share the sources. */
int perf_gpu_lib_enqueue_checked(void *self, unsigned m, uint64_t ops, cudaStream_t stream)
{
    struct perf_gpu_lib *lib = self;
    const struct perf_gpu_proof *proof = &lib->proofs[m];
    int attention = lib->gpu->place->role == STEPAF_ATTENTION;

    for (uint64_t i = 0; i < ops; i++) {
        const struct perf_gpu_pieces *first = attention ? &proof->out : &proof->in;
        const struct perf_gpu_pieces *last = attention ? &proof->in : &proof->out;
        stepaf_status_t status;

        if (!attention) {
            status = stepaf_recv_on_stream(lib->plans[m], stream);
            if (status != STEPAF_OK)
                return perf_fail_status(status, "stepaf_recv_on_stream");
            if (perf_gpu_try(perf_gpu_launch_verify(first, stream)) != 0 ||
                perf_gpu_try(perf_gpu_launch_fill(last, stream)) != 0)
                return -1;
            status = stepaf_respond_on_stream(lib->plans[m], NULL, stream);
            if (status != STEPAF_OK)
                return perf_fail_status(status, "stepaf_respond_on_stream");
        } else {
            if (perf_gpu_try(perf_gpu_launch_fill(first, stream)) != 0)
                return -1;
            status = stepaf_start_on_stream(lib->plans[m], NULL, stream, NULL);
            if (status != STEPAF_OK)
                return perf_fail_status(status, "stepaf_start_on_stream");
            status = stepaf_wait_on_stream(lib->plans[m], stream);
            if (status != STEPAF_OK)
                return perf_fail_status(status, "stepaf_wait_on_stream");
            if (perf_gpu_try(perf_gpu_launch_verify(last, stream)) != 0)
                return -1;
        }
        if (perf_gpu_try(perf_gpu_launch_turn(lib->counts + 1 + m, stream)) != 0)
            return -1;
    }
    return 0;
}
