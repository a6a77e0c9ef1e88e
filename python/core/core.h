/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of stepaf._core: the library's functions, holds on memory, and the Python types. All
 * code runs with the interpreter lock, except between release and acquire of stepaf_py_unlock. */
#ifndef STEPAF_PY_CORE_H
#define STEPAF_PY_CORE_H

#include "limited.h"

#include <stdbool.h>
#include <stdint.h>

#include <stepaf/batch.h>
#include <stepaf/clock.h>
#include <stepaf/context.h>
#include <stepaf/counters.h>
#include <stepaf/key.h>
#include <stepaf/link.h>
#include <stepaf/members.h>
#include <stepaf/memory.h>
#include <stepaf/plan.h>
#include <stepaf/request.h>
#include <stepaf/stream.h>
#include <stepaf/timeline.h>
#include <stepaf/trace.h>

/* Every library function that is called. The table takes their types from the headers; the
 * addresses are looked up when the library is loaded, so that building does not require the
 * library. */
/* clang-format off */
#define LIBRARY_MAP(_) \
    _(alloc) _(barrier) _(batch_answer) _(batch_query) _(batch_tensor) _(cancel) \
    _(clock_ns) _(commit_with) _(confirm) _(counters_query) _(default_timeout_us) _(deregister) \
    _(dtype_bytes) _(dtype_name) _(epoch) _(event_name) _(finalize) _(free) _(init) \
    _(key_declare) _(key_set_recv) _(key_withdraw) _(last_error) _(link_query) \
    _(map_check) _(members_address) _(members_fd) _(members_query) _(members_reason) \
    _(memory_query) _(n_peers) _(peer_index) _(peer_rank) _(phase_name) \
    _(plan_answers) _(plan_bytes) _(plan_create) _(plan_create_ffn) _(plan_depth) _(plan_destroy) \
    _(plan_origin) _(plan_set_answers) _(plan_status) _(plan_tensor) _(progress) _(push_pull) _(rank) _(recv) \
    _(recv_on_stream) _(register) _(release) _(request_answers) _(request_peer) _(request_sent) \
    _(request_slot) _(request_tensor) _(respond) _(respond_many) _(respond_on_stream) \
    _(respond_tensor) _(role) _(set_interrupt) _(size) _(start) _(start_on_stream) _(start_with) _(status_name) \
    _(status_text) _(test) _(timeline_query) _(trace_clear) _(trace_read) \
    _(transport_name) _(wait) _(wait_any) _(wait_on_stream) _(wait_peer) \
    _(wait_push) _(wait_rest) _(wait_tensor) _(world_rank)
/* clang-format on */

struct library {
#define LIBRARY_FIELD(name_) __typeof__(stepaf_##name_) *name_##_;
    LIBRARY_MAP(LIBRARY_FIELD)
#undef LIBRARY_FIELD
    const char *(*version_)(void);
};

extern struct library stepaf_py_lib;
#define LIB(name_) (*stepaf_py_lib.name_##_)

/* The number of forks between the process that loaded the library and this one. Objects made
 * before a fork belong to the parent. */
extern unsigned stepaf_py_forks;

PyObject *stepaf_py_load(PyObject *module, PyObject *path);

/* ---- failures ---- */

/* Raise the exception of @a status, with the details of the thread's last failure. */
void *stepaf_py_raise(stepaf_status_t status);

/* The same for a poll without a result, or for a failure without details of its own. */
void *stepaf_py_raise_plain(stepaf_status_t status);

/* Raise the exception of @a status with a sentence of this module. */
void *stepaf_py_refuse(stepaf_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

PyObject *stepaf_py_set_errors(PyObject *module, PyObject *args);

/* Return None, or the exception of @a status. */
PyObject *stepaf_py_done(stepaf_status_t status);

/* ---- contexts ---- */

struct hold;
struct left_plan;

typedef struct {
    PyObject_HEAD stepaf_context_h handle; /* NULL: not initialized, or finalized */
    unsigned forks;
    bool was_open;        /* cannot be opened again: old tensors would become valid */
    bool closing;         /* no new call may begin, and waiting calls return */
    unsigned n_inside;    /* threads in the library without the interpreter lock */
    unsigned n_long;      /* of those, in calls that can hold the context's lock for long */
    unsigned n_exports;   /* exports of the context's memory, to readers by address */
    struct hold *dropped; /* allocations without references */
    struct hold *registered;
    struct left_plan *left_plans; /* plans without references that could not be destroyed yet */
    int64_t timeout_us;           /* the default */
    PyObject *keys; /* {key: the bytes of its struct typed_key}; NULL: no key is declared */
} context_obj;

/* Check that @a ctx can be called; returns false with the exception set if not. */
bool stepaf_py_is_open(context_obj *ctx);

/* Whether @a ctx is in a job, and this process is not a fork of the one that joined: its memory
 * then exists. */
static inline bool stepaf_py_is_there(const context_obj *ctx)
{
    return ctx->handle && ctx->forks == stepaf_py_forks;
}

struct typed_key;

/* Return the type and shape of a key declared through @a ctx; otherwise they are unknown. */
void stepaf_py_key(const context_obj *ctx, uint64_t key, struct typed_key *typed_p);

/* Free the allocations without references; those that cannot be freed yet are kept for the next
 * time. Waits for peers STEPAF_TIMEOUT_US at most. Call only while nothing is in flight. Returns
 * false if a signal handler has raised an exception. */
bool stepaf_py_sweep(context_obj *ctx);

/* Destroy a plan without references. A peer may still hold its batch: then it is destroyed later. */
void stepaf_py_plan_drop(context_obj *ctx, stepaf_plan_h plan);

/* Destroy the plans without references whose batches have been released. Call before what they
 * would keep from its keys or memory. */
void stepaf_py_plans_retry(context_obj *ctx);

/* End an export. The last one of a closed context lets the context leave the job. */
void stepaf_py_export_end(context_obj *ctx);

/* Enclose a call that can keep the library from returning soon. */
PyThreadState *stepaf_py_unlock(context_obj *ctx, bool is_long);
void stepaf_py_lock(context_obj *ctx, bool is_long, PyThreadState *state);

/* Evaluate @a call_ without the interpreter lock. */
#define UNLOCKED(ctx_, is_long_, call_)                               \
    do {                                                              \
        PyThreadState *state_ = stepaf_py_unlock((ctx_), (is_long_)); \
        call_;                                                        \
        stepaf_py_lock((ctx_), (is_long_), state_);                   \
    } while (0)

/* Evaluate @a call_, which blocks at most on the context's lock: with the interpreter lock,
 * unless another thread may hold the context's lock for long. */
#define BRIEFLY(ctx_, call_)                          \
    do {                                              \
        if (__builtin_expect((ctx_)->n_long != 0, 0)) \
            UNLOCKED(ctx_, false, call_);             \
        else                                          \
            call_;                                    \
    } while (0)

/* Signals during a call that waits for other ranks: signals.c. */
struct signals {
    int fds[2];
    int before; /* the interpreter's wakeup file descriptor; -1: it had none */
    bool is_on, stops;
    unsigned char heard[64];
    size_t n;
};
void stepaf_py_signals_begin(struct signals *signals);
/* Run the handlers. Returns false if one has raised an exception. */
bool stepaf_py_signals_end(struct signals *signals);

/* Evaluate @a call_, which waits for other ranks, without the interpreter lock; SIGINT and
 * SIGTERM end it. *good_p_: false if a signal handler has then raised an exception. */
#define WAITING(ctx_, good_p_, call_)                  \
    do {                                               \
        struct signals signals_;                       \
        stepaf_py_signals_begin(&signals_);            \
        UNLOCKED(ctx_, true, call_);                   \
        *(good_p_) = stepaf_py_signals_end(&signals_); \
    } while (0)

/* As stepaf_py_done, for a call that another thread's close may have ended. */
PyObject *stepaf_py_done_long(const context_obj *ctx, stepaf_status_t status);

/* A wait in pieces: between pieces, signals are checked and the context may be closed. */
struct waiter {
    context_obj *ctx;
    int64_t deadline_ns;
    int64_t early_ns; /* a time-out of the piece cannot come before this */
};

struct waiter stepaf_py_waiter(context_obj *ctx, int64_t timeout_us);

/* Duration of the next piece. */
int64_t stepaf_py_piece_us(struct waiter *waiter);

/* Handle the result of a piece. Returns -1: an exception is set; 0: wait for another piece; 1:
 * this is the result of the whole wait. A STEPAF_ERR_TIMEOUT before the time of the piece is over is
 * one: that of an operation on a stream, which STEPAF_STREAM_TIMEOUT_US has ended. */
int stepaf_py_piece_done(const struct waiter *waiter, stepaf_status_t status);

/* Convert a timeout argument: None, or seconds. Returns false with the exception set on failure. */
bool stepaf_py_timeout(PyObject *seconds, int64_t *timeout_us_p);

/* Convert an index, from -1 on. Returns false with the exception set on failure. */
bool stepaf_py_number(PyObject *object, int *number_p);

/* Convert a text of the library, which may contain arbitrary bytes of a setting or be truncated. */
PyObject *stepaf_py_text(const char *text);

/* Compute the bytes of all elements of a shape. Returns false with the exception set on failure. */
bool stepaf_py_bytes(size_t item, int ndim, const int64_t *shape, size_t *bytes_p);

/* Read a sequence of at most STEPAF_MAX_DIMS sizes; return their number, or -1. */
int stepaf_py_shape(PyObject *shape, int64_t *shape_p);

/* ---- memory ---- */

enum hold_kind {
    HOLD_BLOCK,   /* an allocation of the context */
    HOLD_BATCH,   /* the receive buffers of a batch */
    HOLD_PLAN,    /* buffers that the context keeps as long as a plan, which is the object */
    HOLD_FOREIGN, /* foreign memory, kept alive by an object or a buffer */
};

/* The owner of a tensor's memory; all tensors of one memory share it. */
struct hold {
    enum hold_kind kind;
    unsigned refs;
    bool ended;       /* freed, released, or its object is freed or released */
    unsigned exports; /* readers by address, which cannot be notified of the end */
    context_obj *ctx; /* NULL for foreign memory */
    void *base;
    size_t bytes;
    stepaf_batch_h batch;
    uint32_t epoch; /* epoch of memory that the next commit ends; 0: none */
    PyObject *object;
    Py_buffer buffer;
    bool has_buffer;
    struct hold *next; /* in the list of those dropped or registered */
};

struct hold *stepaf_py_hold(enum hold_kind kind, context_obj *ctx);
void stepaf_py_hold_drop(struct hold *hold);

/* Return NULL, or why the memory no longer exists. */
const char *stepaf_py_hold_end(const struct hold *hold);

/* Check that the memory still exists; if not, the exception is set. */
bool stepaf_py_hold_check(const struct hold *hold);

typedef struct {
    PyObject_HEAD struct hold *hold;
    uint64_t key;
    char *data;
    size_t bytes;
    int dtype;   /* stepaf_dtype_t; -1: not a type of the library */
    size_t item; /* bytes of an element */
    int ndim;
    Py_ssize_t shape[STEPAF_MAX_DIMS];
    Py_ssize_t strides[STEPAF_MAX_DIMS]; /* in bytes, for buffers */
    stepaf_mem_kind_t mem_kind;
    int device; /* number of the GPU */
    bool readonly;
    bool is_pinned; /* counts as an export until it ends */
} tensor_obj;

/* Make a tensor; takes a reference to @a hold. */
tensor_obj *stepaf_py_tensor(struct hold *hold, void *data, size_t bytes, int dtype, int ndim,
                             const int64_t *shape, stepaf_mem_kind_t mem_kind);
PyObject *stepaf_py_tensor_from_info(struct hold *hold, const stepaf_tensor_info_t *info);
PyObject *stepaf_py_tensor_shape(tensor_obj *self, void *closure);

/* Begin or end a read of the tensor by its address. */
void stepaf_py_export_begin(tensor_obj *tensor);
void stepaf_py_unexport(tensor_obj *tensor);

int stepaf_py_getbuffer(tensor_obj *self, Py_buffer *view, int flags);
void stepaf_py_releasebuffer(tensor_obj *self, Py_buffer *view);
PyObject *stepaf_py_cuda_array(tensor_obj *self, void *closure);

/* Make a tensor of any object that describes memory: a Tensor, a buffer, DLPack, or CUDA's array
 * interface. Returns a new reference; NULL with the exception set on failure. */
tensor_obj *stepaf_py_acquire(PyObject *object);

/* Make a tensor of one of torch's; NULL without an exception if the object is not one, or an
 * unusual one. */
tensor_obj *stepaf_py_of_torch(PyObject *object);

/* DLPack: export, and import of a capsule. */
PyObject *stepaf_py_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *stepaf_py_dlpack_device(PyObject *self, PyObject *unused);
tensor_obj *stepaf_py_from_capsule(PyObject *capsule);
PyObject *stepaf_py_as_tensor(PyObject *module, PyObject *object);

int stepaf_py_gpu_of(const void *data);

/* Up to this many tensors are passed to the library without an allocation. */
enum { FEW_TENSORS = 16 };

/* A key, with the element type of its tensors: a stepaf_dtype_t, or -1 if unknown; and the shape
 * of the largest. */
struct typed_key {
    uint64_t key;
    int dtype;
    int ndim; /* 0: the shape is not known */
    int64_t shape[STEPAF_MAX_DIMS];
};

/* Return the key in the library's description of an answer. */
static inline void stepaf_py_key_of_info(const stepaf_tensor_info_t *info, struct typed_key *key_p)
{
    key_p->key = info->key;
    key_p->dtype = (int)info->dtype;
    key_p->ndim = info->ndim;
    for (int i = 0; i < info->ndim; i++)
        key_p->shape[i] = info->shape[i];
}

/* An array of tensors for the library, and the objects that keep their memory alive. Must not be
 * copied. */
struct tensors {
    int n;
    stepaf_tensor_t *array;
    tensor_obj **owners;
    stepaf_tensor_t few[FEW_TENSORS];
    tensor_obj *few_owners[FEW_TENSORS];
};

/* Read (key, tensor) pairs, or a mapping of them. Returns false with InvalidError set if a
 * tensor's element type or rows are not its key's, or a tensor to be written is read-only. */
bool stepaf_py_tensors_of_pairs(struct tensors *tensors, context_obj *ctx, PyObject *pairs,
                                bool is_written);

/* Read tensors or None, whose keys are keys[i % n_keys]. A single tensor may be given without a
 * list. */
bool stepaf_py_tensors_of(struct tensors *tensors, PyObject *objects, const struct typed_key *keys,
                          int n_keys);
void stepaf_py_tensors_free(struct tensors *tensors);

/* Return a tuple of the objects that keep them alive. */
PyObject *stepaf_py_tensors_keep(const struct tensors *tensors);

/* ---- plans, requests, batches ---- */

struct request_obj;

typedef struct {
    PyObject_HEAD context_obj *ctx;
    stepaf_plan_h handle; /* NULL: destroyed */
    uint32_t flags;
    unsigned depth;
    bool is_ffn;
    bool is_starting; /* by start_async: its steps are atomic for other threads */
    PyObject *pulls;  /* the receiving tensors, as planned; NULL at an FFN rank */
    int n_keys;       /* of its pushes; at an FFN rank, of its answers to a peer */
    struct typed_key keys[STEPAF_MAX_TENSORS];
    stepaf_request_h last; /* the last started request; NULL: none */
    /* By slot: the request of start_async that has not been waited for yet; borrowed. */
    struct request_obj *unwaited[STEPAF_MAX_DEPTH];
} plan_obj;

typedef struct request_obj {
    PyObject_HEAD context_obj *ctx;
    PyObject *plan;  /* or NULL */
    PyObject *pulls; /* or NULL: an answer's request */
    stepaf_request_h handle;
    int unwaited; /* the slot in its plan's array; -1: none */
} request_obj;

typedef struct {
    PyObject_HEAD struct hold *hold;
    stepaf_batch_info_t info;
    bool responded;
} batch_obj;

/* For types whose objects are made by methods only. */
PyObject *stepaf_py_no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

PyObject *stepaf_py_request(context_obj *ctx, PyObject *plan, PyObject *pulls,
                            stepaf_request_h handle);
PyObject *stepaf_py_batch(context_obj *ctx, stepaf_batch_h handle);

/* Keep the slot of @a request, made by start_async, until the request is waited for or freed. */
void stepaf_py_request_keep(request_obj *request);

extern PyTypeObject *stepaf_py_context_type, *stepaf_py_plan_type, *stepaf_py_request_type,
    *stepaf_py_batch_type, *stepaf_py_tensor_type;
extern PyType_Spec stepaf_py_context_spec, stepaf_py_plan_spec, stepaf_py_request_spec,
    stepaf_py_batch_spec, stepaf_py_tensor_spec;

/* Methods of contexts, by subject. */
extern PyMethodDef stepaf_py_context_setup[], stepaf_py_context_members[],
    stepaf_py_context_memory[], stepaf_py_context_plans[], stepaf_py_context_recv[],
    stepaf_py_context_look[];
/* Methods of plans on streams. */
extern PyMethodDef stepaf_py_plan_stream[];

PyObject *stepaf_py_wait_any(PyObject *module, PyObject *args, PyObject *kwargs);
/* measure(plan, n, ready): ([ns of start], [ns of wait]) of n operations in C. With ready, a
 * wait begins when the operation is complete, so that only the call is measured; otherwise the
 * whole wait is. */
PyObject *stepaf_py_measure(PyObject *module, PyObject *args);
PyObject *stepaf_py_respond_many(PyObject *module, PyObject *args, PyObject *kwargs);

/* A dictionary that the Python part fills: its record classes, and the function that awaits a
 * request. */
extern PyObject *stepaf_py_hooks;

/* Call the hook @a name; steals a reference to @a args, a tuple or NULL. */
PyObject *stepaf_py_hook(const char *name, PyObject *args);

bool stepaf_py_add_constants(PyObject *module);

#endif
