/* SPDX-License-Identifier: Apache-2.0 */
/* Structures that the library fills for a caller who may have been compiled with an older or a
 * newer version of the headers: each begins with the size that the caller knows it with. */
#ifndef STEPAF_API_FILL_H
#define STEPAF_API_FILL_H

#include "core/ctx.h"
#include "core/key.h"

/* What the first version that had a size knew, in bytes: no caller can say less. Never changed. */
enum {
    STEPAF_FIRST_TENSOR_INFO = 120,
    STEPAF_FIRST_BATCH_INFO = 32,
    STEPAF_FIRST_LINK_INFO = 312,
    STEPAF_FIRST_TIMELINE = 48,
    STEPAF_FIRST_COUNTERS = 120,
    STEPAF_FIRST_MEMORY_USE = 72,
    STEPAF_FIRST_MEMBERS = 40,
    STEPAF_FIRST_TRACE_RECORD = 32, /* the size is a parameter of stepaf_trace_read */
    STEPAF_FIRST_VERDICT_WINDOW = 256,
    STEPAF_FIRST_VERDICT_PEER = 208,
    STEPAF_FIRST_VERDICT = 136 /* and of stepaf_verdict_read */
};

/* Copy @a facts, of @a bytes bytes, to the caller's structure @a out_p, but no more than it has
 * room for, as its first word says; that word stays, and so does what lies behind @a bytes.
 * STEPAF_ERR_INVALID, and nothing copied, if the room is less than @a first_bytes; @a type is
 * the structure's name for the sentence. */
stepaf_status_t stepaf_fill(void *out_p, const char *type, size_t first_bytes, const void *facts,
                            size_t bytes);

/* Describe a tensor to the caller; see stepaf_key_describe. */
stepaf_status_t stepaf_fill_tensor_of_size(const struct stepaf_key *key, uint64_t id, void *data,
                                           uint32_t bytes, uint32_t max_bytes,
                                           stepaf_tensor_info_t *info_p) __attribute__((cold));

static inline stepaf_status_t stepaf_fill_tensor(const struct stepaf_key *key, uint64_t id,
                                                 void *data, uint32_t bytes, uint32_t max_bytes,
                                                 stepaf_tensor_info_t *info_p)
{
    if (__builtin_expect(info_p->size != sizeof(*info_p), 0))
        return stepaf_fill_tensor_of_size(key, id, data, bytes, max_bytes, info_p);
    stepaf_key_describe(key, id, data, bytes, max_bytes, info_p);
    return STEPAF_OK;
}

#endif
