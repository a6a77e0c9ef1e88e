# SPDX-License-Identifier: Apache-2.0
"""DLPack with producers and consumers that are no Python library: structures that a C program would make."""

import ctypes
import gc
import threading

import job
import stepaf

CPU, CUDA_HOST, OPENCL = 1, 3, 4
INT, UINT, FLOAT, BOOL, FLOAT4 = 0, 1, 2, 6, 17


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Old(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32 * 2), ("manager", ctypes.c_void_p), ("deleter", Deleter),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


def function(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


new = function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
pointer = function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
rename = function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


class Producer:
    """Offers its own 64 bytes, as it says."""

    def __init__(self, shape=(2, 3), strides=None, code=FLOAT, bits=32, lanes=1, kind=CPU, byte_offset=0,
                 version=None, flags=0, name=None):
        sizes = ctypes.c_int64 * len(shape)
        self.memory = (ctypes.c_uint8 * 64)(*range(64))
        self.kind = kind
        self.managed = Versioned(version=(version, 0), flags=flags) if version else Old()
        self.managed.tensor = Tensor(ctypes.addressof(self.memory), (kind, 0), len(shape), code, bits, lanes,
                                     sizes(*shape), sizes(*strides) if strides else None, byte_offset)
        self.name = name or (b"dltensor_versioned" if version else b"dltensor")

    def __dlpack__(self, **unused):
        return new(ctypes.addressof(self.managed), self.name, None)

    def __dlpack_device__(self):
        return self.kind, 0


class Import(job.TestCase):
    def test_what_is_said(self):
        for code, bits, name, item in ((FLOAT, 32, "f32", 4), (BOOL, 8, "u8", 1), (INT, 64, "i64", 8),
                                       (UINT, 32, None, 4)):
            for version in (None, 1):
                producer = Producer(code=code, bits=bits, version=version, byte_offset=8)
                tensor = stepaf.as_tensor(producer)
                self.assertEqual((tensor.shape, tensor.dtype, tensor.nbytes, tensor.data_ptr()),
                                 ((2, 3), name, 6 * item, ctypes.addressof(producer.memory) + 8))

    def test_strides(self):
        for shape, strides in (((2, 3), (3, 1)), ((2, 1, 3), (3, 77, 1)), ((0, 3), (3, 1))):
            self.assertEqual(stepaf.as_tensor(Producer(shape, strides)).shape, shape)
        for shape, strides in (((2, 3), (1, 2)), ((2, 3), (4, 1)), ((2,), (-1,))):
            with self.assertRaisesRegex(stepaf.InvalidError, "not contiguous"):
                stepaf.as_tensor(Producer(shape, strides))

    def test_pinned_host_memory(self):
        self.assertEqual(stepaf.as_tensor(Producer(kind=CUDA_HOST)).device, "cpu")

    def test_read_only(self):
        with memoryview(stepaf.as_tensor(Producer(version=1, flags=1))) as view:
            self.assertTrue(view.readonly)

    def test_elements_of_several_lanes(self):
        tensor = stepaf.as_tensor(Producer((4,), code=FLOAT4, bits=4, lanes=2))
        self.assertEqual((tensor.dtype, tensor.nbytes), (None, 4))

    def test_elements_that_are_no_whole_bytes(self):
        """Whether they are packed is not said: a view of bytes for each could reach beyond them."""
        for bits, lanes in ((4, 1), (1, 1), (6, 2), (0, 1), (32, 0)):
            with self.assertRaisesRegex(stepaf.UnsupportedError, f"elements of {bits * lanes} bits"):
                stepaf.as_tensor(Producer((4,), code=UINT, bits=bits, lanes=lanes))

    def test_sizes_that_cannot_be(self):
        for shape in ((-1,), (2, -3), (2**62, 2), (2**40, 2**40)):
            with self.assertRaisesRegex(stepaf.InvalidError, "a shape "):
                stepaf.as_tensor(Producer(shape))
        for n in (9, 33):
            with self.assertRaisesRegex(stepaf.InvalidError, f"a tensor of {n} dimensions"):
                stepaf.as_tensor(Producer((1,) * n))

    def test_what_is_not_understood(self):
        with self.assertRaisesRegex(stepaf.UnsupportedError, "DLPack's device type 4"):
            stepaf.as_tensor(Producer(kind=OPENCL))
        with self.assertRaisesRegex(stepaf.UnsupportedError, "DLPack 2"):
            stepaf.as_tensor(Producer(version=2))
        for name in (b"used_dltensor", b"used_dltensor_versioned"):
            with self.assertRaisesRegex(stepaf.InvalidError, "the capsule is used up"):
                stepaf.as_tensor(Producer(name=name))
        with self.assertRaisesRegex(stepaf.InvalidError, "the capsule is not DLPack's"):
            stepaf.as_tensor(Producer(name=b"another"))


class Export(job.TestCase):
    """Who has taken a tensor out of its capsule keeps its memory, until it calls the deleter."""

    def take(self, tensor, **request):
        capsule = tensor.__dlpack__(**request)
        name, layout = (b"dltensor_versioned", Versioned) if request else (b"dltensor", Old)
        managed = layout.from_address(pointer(capsule, name))
        self.name = b"used_" + name
        rename(capsule, self.name)
        return managed

    def test_memory_is_kept_until_the_deleter_is_called(self):
        for request in ({}, {"max_version": (1, 0)}):
            for in_thread in (False, True):
                memory = bytearray(range(16))
                managed = self.take(stepaf.as_tensor(memory), **request)
                gc.collect()
                self.assertEqual(ctypes.string_at(managed.tensor.data, 16), memory)
                with self.assertRaises(BufferError):
                    memory.append(0)
                call = managed.deleter, ctypes.addressof(managed)
                if in_thread:  # without the interpreter's lock
                    other = threading.Thread(target=call[0], args=call[1:])
                    other.start()
                    other.join()
                else:
                    call[0](call[1])
                memory.append(0)


if __name__ == "__main__":
    job.main()
