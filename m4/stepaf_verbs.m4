# SPDX-License-Identifier: Apache-2.0
# STEPAF_VERBS: libibverbs, optional: the RDMA transport.
AC_DEFUN([STEPAF_VERBS], [
STEPAF_PACKAGE([verbs], [libibverbs, for RDMA],
    [libibverbs], [-libverbs], [libibverbs-dev],
    [infiniband/verbs.h], [[int n; ibv_get_device_list(&n);]])
])
