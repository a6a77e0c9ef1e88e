# SPDX-License-Identifier: Apache-2.0
# STEPAF_PMIX: PMIx, optional: starting without MPI.
AC_DEFUN([STEPAF_PMIX], [
STEPAF_PACKAGE([pmix], [PMIx, for starting without MPI],
    [pmix], [-lpmix], [libpmix-dev],
    [pmix.h], [[PMIx_Initialized();]])
])
