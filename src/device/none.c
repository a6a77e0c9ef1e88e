/* SPDX-License-Identifier: Apache-2.0 */
/* No GPU: for builds without the CUDA toolkit. None is ever open, so only what works without one has
 * anything to do, and the rest refuses. */
#include <stdio.h>

#include "device/gpu.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static stepaf_status_t refuse(void)
{
    return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                            "no GPU: this build has no CUDA");
}

bool stepaf_gpu_probe(char *reason)
{
    snprintf(reason, STEPAF_REASON_MAX, "this build has no CUDA");
    return false;
}

bool stepaf_gpu_likely(void)
{
    return false;
}

stepaf_status_t stepaf_gpu_open(struct stepaf_gpu **gpu_p)
{
    return refuse();
}

void stepaf_gpu_close(struct stepaf_gpu *gpu)
{
}

const struct stepaf_gpu_facts *stepaf_gpu_facts(const struct stepaf_gpu *gpu)
{
    static const struct stepaf_gpu_facts nothing;

    return &nothing;
}

void stepaf_gpu_classify(const void *ptr, struct stepaf_gpu_place *place_p)
{
    *place_p = (struct stepaf_gpu_place){0};
}

stepaf_status_t stepaf_gpu_alloc(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p)
{
    return refuse();
}

void stepaf_gpu_free(struct stepaf_gpu *gpu, void *ptr)
{
}

stepaf_status_t stepaf_gpu_alloc_host(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p)
{
    return refuse();
}

void stepaf_gpu_free_host(struct stepaf_gpu *gpu, void *ptr)
{
}

stepaf_status_t stepaf_gpu_pin(struct stepaf_gpu *gpu, void *ptr, size_t bytes, bool *own_p)
{
    return refuse();
}

void stepaf_gpu_unpin(struct stepaf_gpu *gpu, void *ptr)
{
}

stepaf_status_t stepaf_gpu_write(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_zero(struct stepaf_gpu *gpu, void *dst, size_t bytes)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_export(struct stepaf_gpu *gpu, const void *ptr,
                                  struct stepaf_gpu_export *export_p)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_import(struct stepaf_gpu *gpu, const struct stepaf_gpu_export *exported,
                                  void **ptr_p)
{
    return refuse();
}

void stepaf_gpu_unimport(struct stepaf_gpu *gpu, void *ptr)
{
}

const struct stepaf_gpu_rdma *stepaf_gpu_rdma(struct stepaf_gpu *gpu)
{
    static const struct stepaf_gpu_rdma nothing = {
        .no_dmabuf = "this build has no CUDA",
        .no_peermem = "this build has no CUDA",
    };

    return &nothing;
}

stepaf_status_t stepaf_gpu_dmabuf(struct stepaf_gpu *gpu, const void *ptr, size_t bytes, int *fd_p,
                                  uint64_t *offset_p)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_sync_memops(struct stepaf_gpu *gpu, const void *ptr)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_flush(struct stepaf_gpu *gpu)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_move(struct stepaf_gpu *gpu, const struct stepaf_gpu_piece *pieces,
                                uint32_t n)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_capturing(struct stepaf_gpu *gpu, void *stream, bool *capturing_p)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_launch(struct stepaf_gpu *gpu, enum stepaf_kernel kernel,
                                  const struct stepaf_flow *flow, uint32_t blocks, uint32_t threads,
                                  bool behind, void *stream)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_launch_any(struct stepaf_gpu *gpu, enum stepaf_any_kernel kernel,
                                      const struct stepaf_any_flow *flow, uint32_t blocks,
                                      uint32_t threads, bool behind, void *stream)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_copy(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes,
                                void *stream)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_store(struct stepaf_gpu *gpu, const struct stepaf_gpu_word *words,
                                 uint32_t n, void *stream)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_event_create(struct stepaf_gpu *gpu, void **event_p)
{
    return refuse();
}

void stepaf_gpu_event_destroy(struct stepaf_gpu *gpu, void *event)
{
}

stepaf_status_t stepaf_gpu_event_record(struct stepaf_gpu *gpu, void *event, void *stream)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_event_await(struct stepaf_gpu *gpu, void *event, void *stream)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_event_test(struct stepaf_gpu *gpu, void *event)
{
    return refuse();
}

stepaf_status_t stepaf_gpu_stream_create(struct stepaf_gpu *gpu, void **stream_p)
{
    return refuse();
}

void stepaf_gpu_stream_destroy(struct stepaf_gpu *gpu, void *stream)
{
}

stepaf_status_t stepaf_gpu_stream_sync(struct stepaf_gpu *gpu, void *stream)
{
    return refuse();
}
