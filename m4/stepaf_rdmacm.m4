# SPDX-License-Identifier: Apache-2.0
# STEPAF_RDMACM: librdmacm, optional: connections of RDMA devices that have none of their own.
AC_DEFUN([STEPAF_RDMACM], [
STEPAF_PACKAGE([rdmacm], [librdmacm, for RDMA connections],
    [librdmacm], [-lrdmacm], [librdmacm-dev],
    [rdma/rdma_cma.h], [[rdma_create_event_channel();]])
])
