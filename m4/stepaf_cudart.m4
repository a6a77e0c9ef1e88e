# SPDX-License-Identifier: Apache-2.0
# STEPAF_CUDART: the CUDA runtime, optional: for programs that test and measure with GPUs. The
# library does not use it. After STEPAF_CUDA, whose toolkit it is looked for in.
AC_DEFUN([STEPAF_CUDART], [
AC_REQUIRE([STEPAF_CUDA])
AS_IF([test "x$stepaf_cuda_have" != xyes && test "x$with_cudart" != xyes], [with_cudart=no])
STEPAF_PACKAGE([cudart], [CUDA runtime, for programs that test and measure with GPUs],
    [], [-lcudart], [nvidia-cuda-toolkit],
    [cuda_runtime_api.h], [[int n; cudaGetDeviceCount(&n);]], [$stepaf_cuda_top])
])
