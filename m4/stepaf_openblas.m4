# SPDX-License-Identifier: Apache-2.0
# STEPAF_OPENBLAS: OpenBLAS, which stepaf_decode needs: matrix products.
AC_DEFUN([STEPAF_OPENBLAS], [
STEPAF_PACKAGE([openblas], [OpenBLAS, for the matrix products of stepaf_decode],
    [openblas], [-lopenblas], [libopenblas-dev],
    [cblas.h], [[openblas_set_num_threads(1);]])
])
