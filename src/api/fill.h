/* SPDX-License-Identifier: Apache-2.0 */
/* Structures that the library fills for a caller who may have been compiled with an older or a
 * newer version of the headers. Each structure begins with its size as the caller knows it. */
#ifndef STEPAF_API_FILL_H
#define STEPAF_API_FILL_H

#include "core/ctx.h"
#include "core/key.h"

/* Sizes in bytes in the first version of each structure that had a size: the minimum that a caller
 * can give. Never changed. */
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
    STEPAF_FIRST_VERDICT = 136 /* the size is a parameter of stepaf_verdict_read */
};

/* Copy @a facts, of @a bytes bytes, to the caller's structure @a out_p, up to the size in its first
 * word. That word stays unchanged, and so do bytes beyond @a bytes. Return STEPAF_ERR_INVALID, and
 * copy nothing, if that size is less than @a first_bytes. @a type: the structure's name for the
 * error text. */
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
