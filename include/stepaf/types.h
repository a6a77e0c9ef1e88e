/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, enumerations and tensors: the types that the other headers share. */
#ifndef STEPAF_TYPES_H
#define STEPAF_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include <stepaf/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Handles have pointer types so that the compiler distinguishes them, but are never dereferenced.
 * NULL, a stale handle or a handle of another kind gives STEPAF_ERR_HANDLE instead of a crash. */
typedef struct stepaf_context *stepaf_context_h;
typedef struct stepaf_plan *stepaf_plan_h;
typedef struct stepaf_request *stepaf_request_h;
typedef struct stepaf_batch *stepaf_batch_h;

/** Role of a rank in the job. */
typedef enum stepaf_role {
    STEPAF_ATTENTION = 0,
    STEPAF_FFN = 1,
    STEPAF_ROLE_AUTO = 2 /* as a parameter: from environment and launcher; as a result: unknown */
} stepaf_role_t;

/** A set of ranks. */
typedef enum stepaf_group {
    STEPAF_GROUP_WORLD = 0,
    STEPAF_GROUP_ATTENTION = 1,
    STEPAF_GROUP_FFN = 2
} stepaf_group_t;

/** All element types: enumerator, name, bytes. The library transfers elements and never interprets
 *  them. */
#define STEPAF_DTYPE_MAP(_)     \
    _(STEPAF_U8, "u8", 1)       \
    _(STEPAF_I8, "i8", 1)       \
    _(STEPAF_I16, "i16", 2)     \
    _(STEPAF_I32, "i32", 4)     \
    _(STEPAF_I64, "i64", 8)     \
    _(STEPAF_F16, "f16", 2)     \
    _(STEPAF_BF16, "bf16", 2)   \
    _(STEPAF_F32, "f32", 4)     \
    _(STEPAF_F64, "f64", 8)     \
    _(STEPAF_F8_E4M3, "fp8", 1) \
    _(STEPAF_F8_E5M2, "fp8_e5m2", 1)

/** Element type of a tensor. */
typedef enum stepaf_dtype {
#define STEPAF_DTYPE_ENUM(name_, text_, bytes_) name_,
    STEPAF_DTYPE_MAP(STEPAF_DTYPE_ENUM)
#undef STEPAF_DTYPE_ENUM
        STEPAF_DTYPE_LAST
} stepaf_dtype_t;

/** Kind of memory. */
typedef enum stepaf_mem_kind { STEPAF_MEM_HOST = 0, STEPAF_MEM_CUDA = 1 } stepaf_mem_kind_t;

enum {
    STEPAF_MAX_DIMS = 8,    /* dimensions of a tensor */
    STEPAF_MAX_TENSORS = 8, /* tensors of one operation per FFN rank, in each direction */
    STEPAF_MAX_DEPTH = 32   /* batches of one key in flight */
};

/** Timeout that stands for the setting STEPAF_TIMEOUT_US (10 s unless set). Timeouts are in
 *  microseconds. 0 polls once. Any negative value means this default. */
#define STEPAF_TIMEOUT_DEFAULT (-INT64_C(1))

/** A tensor that the caller passes: its key and its bytes. @a data points to memory that is
 *  registered with the context (see stepaf/memory.h), and may be NULL only if @a bytes is 0. The
 *  structure never changes. */
typedef struct stepaf_tensor {
    uint64_t key;
    void *data;
    size_t bytes;
} stepaf_tensor_t;

/** A tensor that the library describes: its actual size, and the shape that follows from this size.
 *  shape[0] is the number of rows in this operation. If the bytes are not whole rows of the
 *  declared shape, the tensor has one dimension of bytes. */
typedef struct stepaf_tensor_info {
    size_t size; /* in: sizeof(stepaf_tensor_info_t) */
    uint64_t key;
    void *data;
    size_t bytes;     /* of this operation */
    size_t max_bytes; /* of the buffer */
    stepaf_dtype_t dtype;
    int ndim;
    int64_t shape[STEPAF_MAX_DIMS];
    stepaf_mem_kind_t mem_kind;
} stepaf_tensor_info_t;

/** Return the name of @a dtype, such as "bf16".
 *  @return a literal; "?" for an unknown value.
 *
 *  Any thread. Does not block. Cannot fail. */
STEPAF_API const char *stepaf_dtype_name(stepaf_dtype_t dtype);

/** Return the bytes of one element of @a dtype.
 *  @return 0 for an unknown value.
 *
 *  Any thread. Does not block. Cannot fail. */
STEPAF_API size_t stepaf_dtype_bytes(stepaf_dtype_t dtype);

#ifdef __cplusplus
}
#endif
#endif
