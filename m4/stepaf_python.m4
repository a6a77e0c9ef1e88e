# SPDX-License-Identifier: Apache-2.0
# STEPAF_PYTHON: Python 3.9 or newer with its headers, for the package's tests and its wheel. The
# library needs none of it.
#
# Sets PYTHON and PYTHON_CPPFLAGS (substituted) and the conditional HAVE_PYTHON.
AC_DEFUN([STEPAF_PYTHON], [
AC_ARG_WITH([python],
    [AS_HELP_STRING([--with-python=check|yes|no|PROGRAM],
        [Python 3.9 or newer, for the Python package's tests and wheel @<:@default=check@:>@])],
    [], [with_python=check])
AS_CASE([$with_python],
    [no], [stepaf_python_have=no
           stepaf_python_note="no (switched off)"],
    [check|yes], [AC_PATH_PROGS([PYTHON], [python3])
                  STEPAF_PYTHON_TRY],
    [AC_PATH_PROG([PYTHON], [$with_python])
     STEPAF_PYTHON_TRY])
AS_IF([test "x$stepaf_python_have" != xyes],
    [AS_CASE([$with_python], [no|check], [],
        [AC_MSG_ERROR([Python was asked for by --with-python=$with_python: $stepaf_python_note])])])
AC_SUBST([PYTHON_CPPFLAGS])
AM_CONDITIONAL([HAVE_PYTHON], [test "x$stepaf_python_have" = xyes])
])

# STEPAF_PYTHON_TRY: whether $PYTHON is new enough, and its headers can be compiled with.
AC_DEFUN([STEPAF_PYTHON_TRY], [
AC_MSG_CHECKING([for python])
stepaf_python_version=`"${PYTHON:-false}" -c 'import platform; print(platform.python_version())' 2>/dev/null`
PYTHON_CPPFLAGS=
stepaf_python_have=no
AS_IF([test -z "$stepaf_python_version"],
    [stepaf_python_note="no (not found; Debian package: python3-dev)"],
    [! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))'],
    [stepaf_python_note="no ($stepaf_python_version is older than 3.9)"],
    [PYTHON_CPPFLAGS=-I`"$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))'`
     stepaf_saved_CPPFLAGS="$CPPFLAGS"
     CPPFLAGS="$CPPFLAGS $PYTHON_CPPFLAGS"
     AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <Python.h>]], [[(void)Py_None;]])],
         [stepaf_python_have=yes
          stepaf_python_note="yes ($stepaf_python_version)"],
         [stepaf_python_note="no (no Python.h of $stepaf_python_version; Debian package: python3-dev)"])
     CPPFLAGS="$stepaf_saved_CPPFLAGS"])
AC_MSG_RESULT([$stepaf_python_note])
])
