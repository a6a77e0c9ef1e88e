/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of proxied peers' tensors, in pinned memory of this process: what streams and host tell
 * each other. */
#include "core/plan.h"
#include "gpu/proxy.h"

/* Return the two words of a head that mean something: bytes, stamp. */
static uint64_t *words_of(const struct stepaf_proxy_buf *buf, uint32_t slot)
{
    return (uint64_t *)(void *)(buf->heads + (size_t)slot * buf->head_pitch + STEPAF_HEAD_TELLS);
}

uint64_t stepaf_proxy_stamp(const struct stepaf_stream *stream, uint64_t n)
{
    return stepaf_stamp(stream->epoch, (uint32_t)(n / stream->plan->depth + 1));
}

void stepaf_proxy_stamp_head(const struct stepaf_proxy_buf *buf, uint32_t slot, uint32_t bytes,
                             uint64_t stamp)
{
    uint64_t *words = words_of(buf, slot);

    __atomic_store_n(&words[0], bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&words[1], stamp, __ATOMIC_RELEASE);
}

/* Read what the stream has announced of a tensor of operation @a n. Announcements of a copy engine
 * have no number, and are cleared when all of the operation is there. Returns false if there is
 * none. */
static bool take_told(const struct stepaf_stream *stream, const struct stepaf_proxy_buf *buf,
                      uint64_t n, stepaf_tensor_t *tensor_p, bool *guarded_p)
{
    uint32_t slot = (uint32_t)(n % stream->plan->depth);
    const uint64_t *words = words_of(buf, slot), *source = words - 2;
    uint64_t stamp = stepaf_proxy_stamp(stream, n);
    uint64_t its = __atomic_load_n(&words[1], __ATOMIC_ACQUIRE);

    if (its == stamp)
        tensor_p->bytes = (uint32_t)__atomic_load_n(&words[0], __ATOMIC_RELAXED);
    else if ((uint32_t)its >= STEPAF_TOLD_ALL)
        tensor_p->bytes = (uint32_t)(its >> 32);
    else
        return false;
    tensor_p->data = buf->data + (size_t)slot * buf->pitch;
    if (!buf->in_place)
        return true;
    if (__atomic_load_n(&source[1], __ATOMIC_ACQUIRE) != stamp)
        return false; /* no order is relied on */
    uint64_t at = __atomic_load_n(&source[0], __ATOMIC_RELAXED);
    tensor_p->data = (void *)(uintptr_t)(at & ~STEPAF_SOURCE_GUARDED); /* NOLINT */
    *guarded_p = *guarded_p || at & STEPAF_SOURCE_GUARDED;
    return true;
}

bool stepaf_proxy_take_told(const struct stepaf_proxy *proxy, uint32_t p, uint64_t n,
                            stepaf_tensor_t *tensors, bool *guarded_p)
{
    uint32_t n_out = proxy->stream->n_out;

    *guarded_p = false;
    for (uint32_t i = 0; i < n_out; i++)
        if (!take_told(proxy->stream, &proxy->out[p * n_out + i], n, &tensors[i], guarded_p))
            return false;
    return true;
}

void stepaf_proxy_clear_marks(const struct stepaf_proxy *proxy, uint32_t p, uint64_t n)
{
    const struct stepaf_stream *stream = proxy->stream;

    for (uint32_t i = 0; i < stream->n_out; i++) {
        const struct stepaf_proxy_buf *buf = &proxy->out[p * stream->n_out + i];
        uint64_t *words = words_of(buf, (uint32_t)(n % stream->plan->depth));
        if ((uint32_t)words[1] >= STEPAF_TOLD_ALL)
            __atomic_store_n(&words[1], 0, __ATOMIC_RELAXED);
    }
}
