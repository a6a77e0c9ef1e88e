/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans that take the next batch of any one worker: STEPAF_PLAN_ANY.
 *
 * The GPU finds whose batch it is. So there are kernel args once each way for all slots, with the
 * tensors of all peers and slots behind them in GPU memory (device/kernels.h); they are made from
 * the kernel args that an ordinary plan would have. */
#ifndef STEPAF_GPU_STREAM_ANY_H
#define STEPAF_GPU_STREAM_ANY_H

#include "gpu/stream.h"

struct stepaf_any {
    struct stepaf_any_args send;
    struct stepaf_any_args receive;
    uint32_t send_blocks;
    uint32_t unpack_blocks; /* 0: the gate does all */
    uint32_t gate_threads;
    uint32_t room[STEPAF_ANY_TENSORS]; /* what an answer can hold, to any of the workers */
};

/* Make @a stream, of an FFN rank, such a one; stepaf_stream_free ends it. */
stepaf_status_t stepaf_any_make(struct stepaf_stream *stream);
/* Bytes of control memory that it needs, behind what every plan has. */
uint64_t stepaf_any_control_bytes(const struct stepaf_stream *stream);
/* Commit: after the kernel args are compiled. */
stepaf_status_t stepaf_any_begin(struct stepaf_stream *stream, uint8_t *control);

/* How many batches can be received and not answered. */
uint64_t stepaf_any_limit(const struct stepaf_stream *stream);

/* Hot: enqueue. @a tensors: NULL, or n_out, the same for every worker. */
stepaf_status_t stepaf_any_send(struct stepaf_stream *stream, const stepaf_tensor_t *tensors,
                                void *cuda_stream);
stepaf_status_t stepaf_any_receive(struct stepaf_stream *stream, void *cuda_stream);

#endif
