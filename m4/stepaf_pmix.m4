# SPDX-License-Identifier: Apache-2.0
# STEPAF_PMIX: PMIx 4 or later, optional: libstepaf_pmix, starting without MPI.
AC_DEFUN([STEPAF_PMIX], [
STEPAF_PACKAGE([pmix], [PMIx, for starting without MPI],
    [pmix], [-lpmix], [libpmix-dev],
    [pmix.h], [[PMIx_Initialized(); (void)PMIX_GET_REFRESH_CACHE;]])
# What libstepaf_pmix.pc says: the module if there is one, else the flags themselves.
AS_IF([test -z "$PMIX_PC"], [PMIX_PC_LIBS="$PMIX_LIBS"], [PMIX_PC_LIBS=])
AC_SUBST([PMIX_PC_LIBS])
])
