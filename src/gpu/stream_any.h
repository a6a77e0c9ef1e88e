/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans with STEPAF_PLAN_ANY, which take the next batch of any one worker.
 *
 * The GPU finds whose batch it is. So there is one set of kernel args each way for all slots; the
 * tensors of all peers and slots lie behind these args in GPU memory (device/kernels.h). They are
 * made from the kernel args that an ordinary plan would have. */
#ifndef STEPAF_GPU_STREAM_ANY_H
#define STEPAF_GPU_STREAM_ANY_H

#include "gpu/stream.h"

struct stepaf_any {
    struct stepaf_any_args send;
    struct stepaf_any_args receive;
    uint32_t send_blocks;
    uint32_t unpack_blocks; /* 0: the gate does everything */
    uint32_t gate_threads;
    uint32_t room[STEPAF_ANY_TENSORS]; /* maximum sizes of an answer's tensors, for any worker */
};

/* Make @a stream, of an FFN rank, such a plan. stepaf_stream_free ends it. */
stepaf_status_t stepaf_any_make(struct stepaf_stream *stream);
/* Return the bytes of control memory that it needs, behind those of every plan. */
uint64_t stepaf_any_control_bytes(const struct stepaf_stream *stream);
/* Commit: set up the args, after the kernel args are compiled. */
stepaf_status_t stepaf_any_begin(struct stepaf_stream *stream, uint8_t *control);

/* Return how many batches can be received and not answered. */
uint64_t stepaf_any_limit(const struct stepaf_stream *stream);

/* Hot: enqueue a send or a receive. @a tensors: NULL, or n_out, the same for every worker. */
stepaf_status_t stepaf_any_send(struct stepaf_stream *stream, const stepaf_tensor_t *tensors,
                                void *cuda_stream);
stepaf_status_t stepaf_any_receive(struct stepaf_stream *stream, void *cuda_stream);

#endif
