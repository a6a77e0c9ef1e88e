# SPDX-License-Identifier: Apache-2.0
# STEPAF_CUNIT: CUnit, which "make check" needs.
AC_DEFUN([STEPAF_CUNIT], [
STEPAF_PACKAGE([cunit], [CUnit, for the unit tests of "make check"],
    [cunit], [-lcunit], [libcunit1-dev],
    [CUnit/CUnit.h], [[CU_initialize_registry();]])
])
