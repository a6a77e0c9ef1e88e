# SPDX-License-Identifier: Apache-2.0
#
# STEPAF_CUDA: the CUDA toolkit, optional: tensors in GPU memory. Only its header and its compiler
# are needed: nothing is linked with CUDA, the driver is looked up at run time. Tried in this order:
# DIR, $NVCC, nvcc in the path, /usr/local/cuda.
#
# STEPAF_CUDA_ARCHS names the GPUs to compile for (default: 80 90 100, as far as nvcc knows them).
#
# Sets NVCC, CUDA_CFLAGS, STEPAF_CUDA_TARGETS and STEPAF_NVCC_WERROR (substituted), the conditional
# HAVE_CUDA and the macro of the same name in config.h, stepaf_cuda_have and stepaf_cuda_note.
AC_DEFUN([STEPAF_CUDA], [
AC_REQUIRE([AC_PROG_SED])
AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=check|yes|no|DIR],
        [CUDA toolkit, for tensors in GPU memory @<:@default=check@:>@])],
    [], [with_cuda=check])
AC_ARG_VAR([NVCC], [CUDA's compiler])
AC_ARG_VAR([NVCCFLAGS], [flags for CUDA's compiler])
AC_ARG_VAR([CUDA_CFLAGS], [compiler flags for cuda.h, overriding what is found])
AC_ARG_VAR([STEPAF_CUDA_ARCHS], [compute capabilities to compile for, such as "80 90 100"])
stepaf_cuda_have=no
AS_CASE([$with_cuda],
    [no], [stepaf_cuda_note="no (switched off)"],
    [check|yes|/*], [AC_MSG_CHECKING([for cuda])
                     STEPAF_CUDA_LOCATE
                     STEPAF_CUDA_TRY
                     AC_MSG_RESULT([$stepaf_cuda_note])],
    [AC_MSG_ERROR([--with-cuda=$with_cuda: neither check, yes, no nor an absolute directory])])
AS_IF([test "x$stepaf_cuda_have" = xyes],
    [AC_DEFINE([HAVE_CUDA], [1], [Define if the CUDA toolkit was found, for tensors in GPU memory.])
     AS_IF([test "x$enable_werror" = xyes], [STEPAF_NVCC_WERROR="-Werror all-warnings"])],
    [AS_CASE([$with_cuda], [yes|/*],
        [AC_MSG_ERROR([cuda was asked for by --with-cuda=$with_cuda: $stepaf_cuda_note; config.log has the details])])
     NVCC= CUDA_CFLAGS=])
AC_SUBST([STEPAF_CUDA_TARGETS])
AC_SUBST([STEPAF_NVCC_WERROR])
AM_CONDITIONAL([HAVE_CUDA], [test "x$stepaf_cuda_have" = xyes])
])

# nvcc, and where its cuda.h is.
AC_DEFUN([STEPAF_CUDA_LOCATE], [
AS_CASE([$with_cuda],
    [/*], [NVCC="$with_cuda/bin/nvcc"],
    [AS_IF([test -z "$NVCC"],
        [NVCC=`command -v nvcc || echo /usr/local/cuda/bin/nvcc`])])
stepaf_cuda_top="${NVCC%/bin/nvcc}"
AS_IF([test -z "$CUDA_CFLAGS" && test -f "$stepaf_cuda_top/include/cuda.h" &&
       test "x$stepaf_cuda_top" != x/usr],
    [CUDA_CFLAGS="-isystem $stepaf_cuda_top/include"])
])

# Whether both serve: the header is new enough, and nvcc, with its host compiler, makes something.
AC_DEFUN([STEPAF_CUDA_TRY], [
stepaf_saved_CPPFLAGS="$CPPFLAGS"
CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cuda.h>
#if CUDA_VERSION < 12000
#error too old
#endif]], [[CUlaunchConfig config; (void)config;]])],
    [stepaf_cuda_header=yes], [stepaf_cuda_header=no])
CPPFLAGS="$stepaf_saved_CPPFLAGS"
STEPAF_CUDA_CHOOSE
AS_IF([test "x$stepaf_cuda_header" = xno],
        [stepaf_cuda_note="no (cuda.h of CUDA 12.0 or newer not found)"],
    [test -z "$stepaf_cuda_archs"],
        [stepaf_cuda_note="no (nvcc not found)"],
    [cat >conftest.cu <<_ACEOF
extern "C" __global__ void f(int *a) { *a = 1; }
_ACEOF
     AC_RUN_LOG([$NVCC -fatbin -std=c++17 $STEPAF_CUDA_TARGETS $NVCCFLAGS -o conftest.fatbin conftest.cu >&AS_MESSAGE_LOG_FD 2>&1])
     AS_IF([test -s conftest.fatbin],
        [stepaf_cuda_have=yes
         stepaf_cuda_note="yes ($stepaf_cuda_version, for$stepaf_cuda_archs)"],
        [stepaf_cuda_note="no ($NVCC cannot compile: see config.log)"])
     rm -f conftest.cu conftest.fatbin])
])

# The targets: each GPU's own code, and the oldest one's assembly for what comes later.
AC_DEFUN([STEPAF_CUDA_CHOOSE], [
stepaf_cuda_archs=
STEPAF_CUDA_TARGETS=
stepaf_cuda_known=`$NVCC --list-gpu-code 2>/dev/null`
stepaf_cuda_version=`$NVCC --version 2>/dev/null | $SED -n 's/.*release \(@<:@0-9.@:>@*\).*/\1/p'`
for stepaf_arch in ${STEPAF_CUDA_ARCHS:-80 90 100}; do
    AS_IF([test -z "$STEPAF_CUDA_ARCHS" && ! AS_ECHO(["$stepaf_cuda_known"]) | grep -qx "sm_$stepaf_arch"],
        [continue])
    test -n "$stepaf_cuda_known" || continue
    AS_IF([test -z "$stepaf_cuda_archs"],
        [STEPAF_CUDA_TARGETS="-gencode arch=compute_$stepaf_arch,code=compute_$stepaf_arch"])
    stepaf_cuda_archs="$stepaf_cuda_archs sm_$stepaf_arch"
    STEPAF_CUDA_TARGETS="$STEPAF_CUDA_TARGETS -gencode arch=compute_$stepaf_arch,code=sm_$stepaf_arch"
done
])
