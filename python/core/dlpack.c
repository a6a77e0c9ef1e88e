/* SPDX-License-Identifier: Apache-2.0 */
/* DLPack export and import. */
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "dlpack.h"

static const struct {
    uint8_t code, bits;
} types[STEPAF_DTYPE_LAST] = {
    [STEPAF_U8] = {DL_UINT, 8},         [STEPAF_I8] = {DL_INT, 8},
    [STEPAF_I16] = {DL_INT, 16},        [STEPAF_I32] = {DL_INT, 32},
    [STEPAF_I64] = {DL_INT, 64},        [STEPAF_F16] = {DL_FLOAT, 16},
    [STEPAF_BF16] = {DL_BFLOAT, 16},    [STEPAF_F32] = {DL_FLOAT, 32},
    [STEPAF_F64] = {DL_FLOAT, 64},      [STEPAF_F8_E4M3] = {DL_F8_E4M3FN, 8},
    [STEPAF_F8_E5M2] = {DL_F8_E5M2, 8},
};

static const char used_old[] = "used_dltensor", used_new[] = "used_dltensor_versioned";
static const char name_old[] = "dltensor", name_new[] = "dltensor_versioned";

/* An export: both versions of the structure, and the arrays that they point to. */
struct exported {
    dl_managed old;
    dl_versioned versioned;
    int64_t shape[STEPAF_MAX_DIMS], strides[STEPAF_MAX_DIMS];
    tensor_obj *tensor;
};

static void export_drop(struct exported *exported)
{
    stepaf_py_unexport(exported->tensor);
    Py_DECREF((PyObject *)exported->tensor);
    free(exported);
}

/* Consumers call this from any thread, with or without the interpreter lock, at any time. */
static void export_delete(struct exported *exported)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    export_drop(exported);
    PyGILState_Release(state);
}

static void delete_old(dl_managed *managed)
{
    export_delete(managed->manager);
}

static void delete_versioned(dl_versioned *managed)
{
    export_delete(managed->manager);
}

/* A capsule without a consumer. */
static void capsule_end(PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);

    if (name && (strcmp(name, name_old) == 0 || strcmp(name, name_new) == 0)) {
        void *managed = PyCapsule_GetPointer(capsule, name);
        export_drop(strcmp(name, name_old) == 0 ? ((dl_managed *)managed)->manager
                                                : ((dl_versioned *)managed)->manager);
    }
}

static void describe(const tensor_obj *tensor, struct exported *exported, dl_tensor *dl)
{
    bool is_known = tensor->dtype >= 0;
    int64_t stride = 1;

    for (int i = tensor->ndim; i-- > 0;) {
        exported->shape[i] = tensor->shape[i];
        exported->strides[i] = stride;
        stride *= tensor->shape[i];
    }
    dl->data = tensor->data;
    dl->device.type = tensor->mem_kind == STEPAF_MEM_CUDA ? DL_CUDA : DL_CPU;
    dl->device.id = tensor->device;
    dl->ndim = tensor->ndim;
    dl->dtype.code = is_known ? types[tensor->dtype].code : DL_UINT;
    dl->dtype.bits = is_known ? types[tensor->dtype].bits : (uint8_t)(8 * tensor->item);
    dl->dtype.lanes = 1;
    dl->shape = exported->shape;
    dl->strides = exported->strides;
    dl->byte_offset = 0;
}

PyObject *stepaf_py_dlpack_device(PyObject *object, PyObject *unused)
{
    const tensor_obj *self = (const tensor_obj *)object;
    (void)unused;

    return Py_BuildValue("(ii)", self->mem_kind == STEPAF_MEM_CUDA ? DL_CUDA : DL_CPU,
                         self->device);
}

static bool read_pair(PyObject *pair, int *first_p, int *second_p)
{
    if (PyTuple_Check(pair))
        return PyArg_ParseTuple(pair, "ii", first_p, second_p);
    PyErr_Format(PyExc_TypeError, "%R is not a tuple of two integers", pair);
    return false;
}

/* Check whether a request for another device, or for a copy, can be met. */
static bool can_export(const tensor_obj *self, PyObject *device, PyObject *copy)
{
    int type, id;

    int copies = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (copies < 0)
        return false;
    if (self->dtype < 0 && self->item != 1 && self->item != 2 && self->item != 4 &&
        self->item != 8) {
        PyErr_Format(PyExc_BufferError, "DLPack has no elements of %zu bytes", self->item);
        return false;
    }
    if (copies) {
        PyErr_SetString(PyExc_BufferError, "the tensor can only be exported without a copy");
        return false;
    }
    if (device == Py_None)
        return true;
    if (!read_pair(device, &type, &id))
        return false;
    if (type == (self->mem_kind == STEPAF_MEM_CUDA ? DL_CUDA : DL_CPU) && id == self->device)
        return true;
    PyErr_Format(PyExc_BufferError, "the tensor is not on DLPack's device (%d, %d)", type, id);
    return false;
}

PyObject *stepaf_py_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    tensor_obj *self = (tensor_obj *)object;
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    int major = 0, minor = 0;

    if (!stepaf_py_parse(args, kwargs, "|$OOOO", names, &stream, &version, &device, &copy) ||
        (version != Py_None && !read_pair(version, &major, &minor)) ||
        !stepaf_py_hold_check(self->hold) || !can_export(self, device, copy))
        return NULL;
    if (self->readonly && major < 1)
        return PyErr_Format(PyExc_BufferError,
                            "the tensor is read-only, which requires DLPack 1.0");
    struct exported *exported = calloc(1, sizeof(*exported));
    if (!exported)
        return PyErr_NoMemory();
    exported->tensor = self;
    describe(self, exported, &exported->old.tensor);
    exported->old.manager = exported;
    exported->old.deleter = delete_old;
    exported->versioned.tensor = exported->old.tensor;
    exported->versioned.version.major = DL_MAJOR;
    exported->versioned.version.minor = DL_MINOR;
    exported->versioned.flags = self->readonly ? DL_READ_ONLY : 0;
    exported->versioned.manager = exported;
    exported->versioned.deleter = delete_versioned;
    PyObject *capsule = major >= 1 ? PyCapsule_New(&exported->versioned, name_new, capsule_end)
                                   : PyCapsule_New(&exported->old, name_old, capsule_end);
    if (!capsule) {
        free(exported);
        return NULL;
    }
    Py_INCREF(object);
    stepaf_py_export_begin(self);
    return capsule;
}

static int dtype_of(const dl_tensor *dl)
{
    int code = dl->dtype.code == DL_F8_E4M3 ? DL_F8_E4M3FN : dl->dtype.code;

    if (dl->dtype.lanes != 1)
        return -1;
    if (code == DL_BOOL)
        return STEPAF_U8;
    for (int i = 0; i < STEPAF_DTYPE_LAST; i++)
        if (types[i].code == code && types[i].bits == dl->dtype.bits)
            return i;
    return -1;
}

static bool is_in_one_piece(const dl_tensor *dl)
{
    int64_t stride = 1;

    for (int i = dl->ndim; dl->strides && i-- > 0;) {
        if (dl->shape[i] == 0)
            return true;
        if (dl->shape[i] != 1 && dl->strides[i] != stride)
            return false;
        stride *= dl->shape[i];
    }
    return true;
}

/* The capsule itself keeps the memory: nothing is taken out of it. */
tensor_obj *stepaf_py_from_capsule(PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);
    const dl_tensor *dl;
    bool readonly = false;

    if (name && strcmp(name, name_new) == 0) {
        const dl_versioned *managed = PyCapsule_GetPointer(capsule, name);
        if (managed->version.major != DL_MAJOR)
            return stepaf_py_refuse(STEPAF_ERR_UNSUPPORTED, "DLPack %u", managed->version.major);
        readonly = managed->flags & DL_READ_ONLY;
        dl = &managed->tensor;
    } else if (name && strcmp(name, name_old) == 0) {
        dl = &((const dl_managed *)PyCapsule_GetPointer(capsule, name))->tensor;
    } else {
        bool is_used = name && (strcmp(name, used_old) == 0 || strcmp(name, used_new) == 0);
        return stepaf_py_refuse(STEPAF_ERR_INVALID, "the capsule is %s",
                                is_used ? "used up" : "not DLPack's");
    }
    int kind = dl->device.type;
    if (kind != DL_CPU && kind != DL_CUDA && kind != DL_CUDA_HOST)
        return stepaf_py_refuse(STEPAF_ERR_UNSUPPORTED, "memory of DLPack's device type %d", kind);
    if (dl->ndim < 0 || dl->ndim > STEPAF_MAX_DIMS)
        return stepaf_py_refuse(STEPAF_ERR_INVALID, "a tensor of %d dimensions", dl->ndim);
    if (!is_in_one_piece(dl))
        return stepaf_py_refuse(STEPAF_ERR_INVALID, "the tensor is not contiguous: pass "
                                                    "tensor.contiguous(), or rows of one");
    unsigned bits = (unsigned)dl->dtype.bits * dl->dtype.lanes;
    if (!bits || bits % 8) /* nothing says whether they are packed */
        return stepaf_py_refuse(STEPAF_ERR_UNSUPPORTED,
                                "the tensor has elements of %u bits, and only whole bytes are "
                                "supported",
                                bits);
    size_t bytes;
    if (!stepaf_py_bytes(bits / 8, dl->ndim, dl->shape, &bytes))
        return NULL;
    struct hold *hold = stepaf_py_hold(HOLD_FOREIGN, NULL);
    if (!hold)
        return NULL;
    hold->object = capsule;
    Py_INCREF(capsule);
    tensor_obj *tensor =
        stepaf_py_tensor(hold, dl->data ? (char *)dl->data + dl->byte_offset : NULL, bytes,
                         dtype_of(dl), dl->ndim, dl->shape, STEPAF_MEM_HOST);
    stepaf_py_hold_drop(hold);
    if (tensor && kind == DL_CUDA) {
        tensor->mem_kind = STEPAF_MEM_CUDA;
        tensor->device = dl->device.id;
    }
    if (tensor)
        tensor->readonly = readonly;
    return tensor;
}
