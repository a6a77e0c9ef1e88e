# SPDX-License-Identifier: Apache-2.0
# STEPAF_CUDA: the CUDA runtime, optional: tensors in GPU memory.
AC_DEFUN([STEPAF_CUDA], [
STEPAF_PACKAGE([cuda], [CUDA runtime, for tensors in GPU memory],
    [], [-lcudart], [nvidia-cuda-toolkit],
    [cuda_runtime_api.h], [[int n; cudaGetDeviceCount(&n);]], [/usr/local/cuda])
])
