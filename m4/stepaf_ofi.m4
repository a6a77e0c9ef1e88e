# SPDX-License-Identifier: Apache-2.0
# STEPAF_OFI: headers of libfabric, optional: transport ofi. The library is looked up at run time.
AC_DEFUN([STEPAF_OFI], [
STEPAF_PACKAGE([ofi], [headers of libfabric 1.17 or newer, for transport ofi],
    [libfabric], [-lfabric], [libfabric-dev],
    [rdma/fi_rma.h], [[int has_1_17@<:@FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 17)) ? 1 : -1@:>@; return has_1_17 == 0;]])
])
