# SPDX-License-Identifier: Apache-2.0
# STEPAF_MLX5: libmlx5, optional: which port of a bond a queue pair sends by.
AC_DEFUN([STEPAF_MLX5], [
STEPAF_PACKAGE([mlx5], [libmlx5, for bonds of RDMA ports],
    [libmlx5], [-lmlx5], [libibverbs-dev],
    [infiniband/mlx5dv.h], [[mlx5dv_modify_qp_lag_port(0, 1);]])
])
