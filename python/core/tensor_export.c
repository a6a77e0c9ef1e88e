/* SPDX-License-Identifier: Apache-2.0 */
/* Export of tensors as buffers, and by CUDA's array interface. */
#include "core.h"

/* The buffer format letter of each type; types without a letter in Python use the unsigned
 * integer of their size. */
static const struct element {
    const char *format, *typestr;
} elements[STEPAF_DTYPE_LAST] = {
    [STEPAF_U8] = {"B", "|u1"},      [STEPAF_I8] = {"b", "|i1"},      [STEPAF_I16] = {"h", "<i2"},
    [STEPAF_I32] = {"i", "<i4"},     [STEPAF_I64] = {"q", "<i8"},     [STEPAF_F16] = {"e", "<f2"},
    [STEPAF_BF16] = {"H", "<u2"},    [STEPAF_F32] = {"f", "<f4"},     [STEPAF_F64] = {"d", "<f8"},
    [STEPAF_F8_E4M3] = {"B", "|u1"}, [STEPAF_F8_E5M2] = {"B", "|u1"},
};

static const struct element *element_of(const tensor_obj *tensor)
{
    static const struct element by_size[] = {
        [1] = {"B", "|u1"}, [2] = {"H", "<u2"}, [4] = {"I", "<u4"}, [8] = {"Q", "<u8"}};

    if (tensor->dtype >= 0)
        return &elements[tensor->dtype];
    return tensor->item < sizeof(by_size) / sizeof(*by_size) && by_size[tensor->item].format
               ? &by_size[tensor->item]
               : NULL;
}

void stepaf_py_export_begin(tensor_obj *tensor)
{
    tensor->hold->exports++;
    if (tensor->hold->ctx)
        tensor->hold->ctx->n_exports++;
}

void stepaf_py_unexport(tensor_obj *tensor)
{
    tensor->hold->exports--;
    if (tensor->hold->ctx)
        stepaf_py_export_end(tensor->hold->ctx);
}

int stepaf_py_getbuffer(tensor_obj *self, Py_buffer *view, int flags)
{
    static char empty;

    view->obj = NULL;
    if (!stepaf_py_hold_check(self->hold))
        return -1;
    if (self->mem_kind != STEPAF_MEM_HOST || (self->readonly && (flags & PyBUF_WRITABLE))) {
        PyErr_Format(PyExc_BufferError, "the tensor is %s",
                     self->readonly ? "read-only" : "in GPU memory: use DLPack");
        return -1;
    }
    const struct element *element = element_of(self);
    if (!element) {
        PyErr_Format(PyExc_BufferError, "no format for elements of %zu bytes", self->item);
        return -1;
    }
    view->buf = self->data ? self->data : &empty;
    view->len = (Py_ssize_t)self->bytes;
    view->itemsize = (Py_ssize_t)self->item;
    view->readonly = self->readonly;
    view->ndim = self->ndim;
    view->format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)element->format : NULL;
    view->shape = flags & PyBUF_ND ? self->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    view->obj = (PyObject *)self;
    Py_INCREF((PyObject *)self);
    stepaf_py_export_begin(self);
    return 0;
}

void stepaf_py_releasebuffer(tensor_obj *self, Py_buffer *view)
{
    (void)view;
    stepaf_py_unexport(self);
}

PyObject *stepaf_py_cuda_array(tensor_obj *self, void *closure)
{
    (void)closure;
    if (self->mem_kind != STEPAF_MEM_CUDA) {
        PyErr_SetString(PyExc_AttributeError, "the tensor is in host memory");
        return NULL;
    }
    if (!stepaf_py_hold_check(self->hold))
        return NULL;
    const struct element *element = element_of(self);
    PyObject *shape = stepaf_py_tensor_shape(self, NULL);
    PyObject *array = shape ? Py_BuildValue("{s:N,s:s,s:(KO),s:O,s:i,s:O}", "shape", shape,
                                            "typestr", element ? element->typestr : "|V1", "data",
                                            (unsigned long long)(uintptr_t)self->data,
                                            self->readonly ? Py_True : Py_False, "strides", Py_None,
                                            "version", 3, "stream", Py_None)
                            : NULL;
    /* A reader keeps the tensor, but does not report the end of its reads. */
    if (array && !self->is_pinned) {
        self->is_pinned = true;
        stepaf_py_export_begin(self);
    }
    return array;
}
