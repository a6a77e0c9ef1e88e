# SPDX-License-Identifier: Apache-2.0
"""What needs no job: constants, exceptions, tensors, and how the library is found."""

import array
import ctypes
import os
import pickle
import subprocess
import sys

import job
import stepaf
from stepaf import _core, _errors


def run(code, **env):
    return subprocess.run([sys.executable, "-c", code], env=dict(os.environ, **env),
                          capture_output=True, text=True, timeout=60)


class Constants(job.TestCase):
    """The extension was compiled with headers; the library that is loaded must agree."""

    def setUp(self):
        self.library = ctypes.CDLL(stepaf.library)

    def test_statuses(self):
        text = self.library.stepaf_status_name
        text.restype = ctypes.c_char_p
        self.assertGreater(len(_core.STATUSES), 20)
        for name, number in _core.STATUSES.items():
            self.assertEqual(text(number).decode(), name)

    def test_dtypes(self):
        name_of = self.library.stepaf_dtype_name
        name_of.restype = ctypes.c_char_p
        size_of = self.library.stepaf_dtype_bytes
        size_of.restype = ctypes.c_size_t
        self.assertEqual(sorted(_core.DTYPES.values()), list(range(len(_core.DTYPES))))
        for name, number in _core.DTYPES.items():
            self.assertEqual(name_of(number).decode(), name)
            self.assertEqual(size_of(number), _core.DTYPE_BYTES[name])
        self.assertEqual(name_of(len(_core.DTYPES)), b"?")

    def test_phases(self):
        name_of = self.library.stepaf_phase_name
        name_of.restype = ctypes.c_char_p
        for words, number in _core.PHASES.items():
            self.assertEqual(name_of(number).decode(), words)

    def test_versions(self):
        self.assertEqual(stepaf.version(), stepaf.__version__)


class Exceptions(job.TestCase):
    def test_a_class_for_each_status(self):
        for name, number in _core.STATUSES.items():
            if number >= 0:
                continue
            cls = getattr(stepaf, _errors.class_name(name))
            self.assertIs(_errors.CLASSES[number], cls)
            self.assertTrue(issubclass(cls, stepaf.StepafError))
            with self.assertRaises(cls) as caught:
                _core.raise_status(number)
            self.assertIs(type(caught.exception), cls)
            self.assertEqual(caught.exception.status, number)
            self.assertEqual(caught.exception.name, name)
            self.assertEqual(caught.exception.text, _core.status_text(number)[1])
            self.assertTrue(caught.exception.text)

    def test_a_status_of_a_newer_library(self):
        with self.assertRaises(stepaf.StepafError) as caught:
            _core.raise_status(-9999)
        self.assertEqual(caught.exception.status, -9999)

    def test_pythons_own(self):
        self.assertTrue(issubclass(stepaf.TimeoutError, TimeoutError))
        self.assertTrue(issubclass(stepaf.PeerLostError, ConnectionError))
        self.assertNotIn("KeyError", stepaf.__all__)
        self.assertNotIn("TimeoutError", stepaf.__all__)

    def test_they_can_be_pickled(self):
        error = stepaf.PeerLostError("gone", -14, "push", 1, 2, 5)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((again.text, again.status, again.phase, again.peer),
                         (error.text, error.status, error.phase, error.peer))
        self.assertEqual(again.peer, stepaf.Peer(stepaf.Role.FFN, 2, 5))


class Tensors(job.TestCase):
    def test_a_buffer(self):
        numbers = array.array("f", range(12))
        tensor = stepaf.as_tensor(numbers)
        self.assertEqual((tensor.shape, tensor.dtype, tensor.nbytes, tensor.device),
                         ((12,), "f32", 48, "cpu"))
        self.assertEqual(tensor.data_ptr(), numbers.buffer_info()[0])
        memoryview(tensor)[3] = 50
        self.assertEqual(numbers[3], 50)

    def test_it_keeps_the_buffer(self):
        numbers = bytearray(8)
        tensor = stepaf.as_tensor(numbers)
        with self.assertRaises(BufferError):
            numbers.extend(b"more")
        del tensor
        numbers.extend(b"more")

    def test_rows_and_views(self):
        tensor = stepaf.view(stepaf.as_tensor(bytearray(range(24))), (4, 3), "i16")
        self.assertEqual(tensor[1:3].shape, (2, 3))
        self.assertEqual(memoryview(tensor[1:3]).tobytes(), bytes(range(6, 18)))
        self.assertEqual(tensor[-1].shape, (3,))
        self.assertEqual(tensor[0:0].nbytes, 0)
        self.assertEqual(len(tensor), 4)
        with self.assertRaises(IndexError):
            tensor[4]
        with self.assertRaises(IndexError):
            tensor[::2]
        with self.assertRaises(stepaf.SizeError):
            stepaf.view(tensor, (5, 3))
        with self.assertRaises(stepaf.InvalidError):
            stepaf.view(tensor, (-1,))

    def test_what_is_not_contiguous(self):
        with self.assertRaisesRegex(stepaf.InvalidError, "not contiguous"):
            stepaf.as_tensor(memoryview(bytearray(8))[::2])

    def test_what_is_no_tensor(self):
        for thing in (1.5, None, "text", [1, 2]):
            with self.assertRaisesRegex(TypeError, "a tensor is something with"):
                stepaf.as_tensor(thing)

    def test_it_is_made_by_others_alone(self):
        for cls in (stepaf.Tensor, stepaf.Batch, stepaf.Plan, stepaf.Request):
            with self.assertRaises(TypeError):
                cls()

    def test_a_read_only_buffer(self):
        tensor = stepaf.as_tensor(b"constant")
        with memoryview(tensor) as bytes_of:
            self.assertTrue(bytes_of.readonly)
        with self.assertRaises(BufferError):
            tensor.__dlpack__()
        tensor.__dlpack__(max_version=(1, 0))

    def test_dlpack(self):
        """Every element type comes back as it was, also without a consumer."""
        class Exporter:
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, **kwargs):
                return self.tensor.__dlpack__(**kwargs)

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()

        class Old(Exporter):
            def __dlpack__(self, stream=None):
                return self.tensor.__dlpack__(stream=stream)

        memory = bytearray(range(48))
        for name in _core.DTYPES:
            tensor = stepaf.view(stepaf.as_tensor(memory), (2, 3), name)
            for exporter in (Exporter, Old):
                again = stepaf.as_tensor(exporter(tensor))
                self.assertEqual((again.shape, again.dtype, again.data_ptr(), again.nbytes),
                                 (tensor.shape, name, tensor.data_ptr(), tensor.nbytes))
        tensor.__dlpack__()
        with self.assertRaises(BufferError):
            tensor.__dlpack__(copy=True)
        with self.assertRaises(BufferError):
            tensor.__dlpack__(dl_device=(2, 0))
        self.assertFalse(hasattr(tensor, "__cuda_array_interface__"))

    def test_cudas_array_interface(self):
        class Array:
            def __init__(self, **more):
                self.__cuda_array_interface__ = dict(shape=(2, 3), typestr="<f4", version=3,
                                                     data=(0x7000, False), **more)

        tensor = stepaf.as_tensor(Array())
        self.assertEqual((tensor.shape, tensor.dtype, tensor.nbytes, tensor.data_ptr()),
                         ((2, 3), "f32", 24, 0x7000))
        self.assertTrue(tensor.device.startswith("cuda:"))

        class Both(bytearray):
            __cuda_array_interface__ = Array().__cuda_array_interface__

        both = stepaf.as_tensor(Both(24))  # cupy's arrays have the buffer protocol, too
        self.assertEqual((both.device, both.data_ptr()), (tensor.device, 0x7000))
        self.assertEqual(tensor.__cuda_array_interface__["data"], (0x7000, False))
        with self.assertRaisesRegex(BufferError, "GPU memory"):
            memoryview(tensor)
        with self.assertRaisesRegex(stepaf.InvalidError, "not contiguous"):
            stepaf.as_tensor(Array(strides=(100, 4)))
        for bad in (dict(shape=(2,)), 5, None):
            broken = Array()
            broken.__cuda_array_interface__ = bad
            with self.assertRaises((TypeError, LookupError)):
                stepaf.as_tensor(broken)

    def test_formats(self):
        for code, name in zip("bBhiqfd", ("i8", "u8", "i16", "i32", "i64", "f32", "f64")):
            self.assertEqual(stepaf.as_tensor(array.array(code, [1])).dtype, name)

    def test_a_type_that_the_library_has_no_name_for(self):
        tensor = stepaf.as_tensor(array.array("I", [1, 2, 3]))
        self.assertIsNone(tensor.dtype)
        self.assertEqual((tensor.nbytes, tensor[1:].nbytes, tensor[3:].nbytes), (12, 8, 0))
        with memoryview(tensor[1:]) as view:
            self.assertEqual(list(view), [2, 3])
        self.assertEqual(stepaf.view(tensor, (3, 1))[2:].nbytes, 4)


class Library(job.TestCase):
    def test_absent(self):
        done = run("import stepaf", STEPAF_LIBRARY="/nowhere")
        self.assertIn("libstepaf cannot be loaded; install it, or set STEPAF_LIBRARY", done.stderr)

    def test_another(self):
        done = run("import stepaf", STEPAF_LIBRARY="libc.so.6")
        self.assertIn("it is of another version", done.stderr)

    def test_nothing_else_is_imported(self):
        done = run("import stepaf, sys; print([name for name in ('torch', 'numpy', 'cupy', 'ctypes') "
                   "if name in sys.modules])")
        self.assertEqual(done.stdout.strip(), "[]", done.stderr)

    def test_main(self):
        done = subprocess.run([sys.executable, "-m", "stepaf"], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(stepaf.library, done.stdout)
        self.assertRegex(done.stdout, "shm +can(not)? be used")

    def test_no_launcher(self):
        with self.assertRaisesRegex(stepaf.BootError, "no launcher has started this process"):
            for name in ("STEPAF_LOCAL_SIZE", "PMIX_NAMESPACE", "PMI_RANK"):
                os.environ.pop(name, None)
            stepaf.Context()


if __name__ == "__main__":
    job.main()
