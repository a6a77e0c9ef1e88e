# SPDX-License-Identifier: Apache-2.0
#
# STEPAF_CUDART: the CUDA runtime, optional: stepaf_perf --mem cuda. Linked statically, so that the
# program also starts where there is none.
# STEPAF_NCCL: NCCL, optional: stepaf_perf --baseline nccl.
#
# Both are looked for beside nvcc first: after STEPAF_CUDA.
AC_DEFUN([STEPAF_CUDART], [
AC_REQUIRE([STEPAF_CUDA])
stepaf_cudart_default=
AS_IF([test "x$stepaf_cuda_have" != xyes], [with_cudart=no],
    [test -f "${NVCC%/bin/nvcc}/include/cuda_runtime_api.h"],
    [stepaf_cudart_default="${NVCC%/bin/nvcc}"])
STEPAF_PACKAGE([cudart], [CUDA runtime, for stepaf_perf --mem cuda],
    [], [-lcudart_static -ldl -lrt -lpthread], [nvidia-cuda-toolkit],
    [cuda_runtime_api.h], [[int n; cudaGetDeviceCount(&n);]], [$stepaf_cudart_default])
STEPAF_SYSTEM_HEADERS([CUDART_CFLAGS])
])

# STEPAF_SYSTEM_HEADERS(CFLAGS): headers that are not written for our warnings.
AC_DEFUN([STEPAF_SYSTEM_HEADERS], [
[$1]=`AS_ECHO(["$[$1]"]) | $SED 's/^-I/-isystem /'`
])

AC_DEFUN([STEPAF_NCCL], [
AC_REQUIRE([STEPAF_CUDART])
stepaf_nccl_default=
AS_IF([test "x$stepaf_cudart_have" != xyes], [with_nccl=no],
    [test -f "$stepaf_cudart_default/include/nccl.h"],
    [stepaf_nccl_default="$stepaf_cudart_default"])
stepaf_nccl_saved_CPPFLAGS="$CPPFLAGS"
CPPFLAGS="$CPPFLAGS $CUDART_CFLAGS"
STEPAF_PACKAGE([nccl], [NCCL, for stepaf_perf --baseline nccl],
    [], [-lnccl], [libnccl-dev],
    [nccl.h], [[int version; ncclGetVersion(&version);]], [$stepaf_nccl_default])
CPPFLAGS="$stepaf_nccl_saved_CPPFLAGS"
STEPAF_SYSTEM_HEADERS([NCCL_CFLAGS])
])
