# SPDX-License-Identifier: Apache-2.0
# STEPAF_HWLOC: hwloc, needed: it tells where the cores, NICs and GPUs are.
AC_DEFUN([STEPAF_HWLOC], [
STEPAF_PACKAGE([hwloc], [hwloc, which finds cores, NICs and GPUs (needed)],
    [hwloc], [-lhwloc], [libhwloc-dev],
    [hwloc.h], [[hwloc_topology_t topology; hwloc_topology_init(&topology);]])
STEPAF_PACKAGE_NEEDED([hwloc], [libhwloc-dev])
])
