# SPDX-License-Identifier: Apache-2.0
#
# STEPAF_FLAGS: flags for our own sources only, so that they cannot disturb configure's checks.
# Substitutes STEPAF_CFLAGS (language, warnings, debugging, sanitizers) and STEPAF_LDFLAGS.
AC_DEFUN([STEPAF_FLAGS], [
STEPAF_CFLAGS="-std=gnu11 -pthread -fvisibility=hidden"
STEPAF_LDFLAGS="-pthread"
STEPAF_FLAGS_WARN
STEPAF_FLAGS_DEBUG
STEPAF_FLAGS_SANITIZE
AC_SUBST([STEPAF_CFLAGS])
AC_SUBST([STEPAF_LDFLAGS])
])

# STEPAF_FLAGS_ADD(FLAG): add it to STEPAF_CFLAGS if the compiler knows it.
AC_DEFUN([STEPAF_FLAGS_ADD], [
AS_VAR_PUSHDEF([stepaf_flag], [stepaf_cv_flag_$1])
AC_CACHE_CHECK([whether $CC takes $1], [stepaf_flag], [
    stepaf_saved_CFLAGS="$CFLAGS"
    CFLAGS="$CFLAGS -Werror $1"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
        [AS_VAR_SET([stepaf_flag], [yes])], [AS_VAR_SET([stepaf_flag], [no])])
    CFLAGS="$stepaf_saved_CFLAGS"])
AS_VAR_IF([stepaf_flag], [yes], [STEPAF_CFLAGS="$STEPAF_CFLAGS $1"])
AS_VAR_POPDEF([stepaf_flag])
])

# Warnings are errors where that is asked for, as test/run does: whoever builds for the first time, or
# years later, with a compiler that warns of more should not have to care.
AC_DEFUN([STEPAF_FLAGS_WARN], [
AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror],
        [make warnings errors, as ./test/run does @<:@default=no@:>@])],
    [], [enable_werror=no])
m4_foreach_w([stepaf_warning],
    [-Wall -Wextra -Wshadow -Wpointer-arith -Wwrite-strings -Wstrict-prototypes
     -Wmissing-prototypes -Wold-style-definition -Wvla -Wformat=2],
    [STEPAF_FLAGS_ADD(stepaf_warning)])
STEPAF_WERROR=
AS_IF([test "x$enable_werror" = xyes], [STEPAF_WERROR=-Werror])
STEPAF_CFLAGS="$STEPAF_CFLAGS $STEPAF_WERROR"
AC_SUBST([STEPAF_WERROR])
])

AC_DEFUN([STEPAF_FLAGS_DEBUG], [
AC_ARG_ENABLE([debug],
    [AS_HELP_STRING([--enable-debug], [compile for a debugger: -O0 -g3 @<:@default=no@:>@])],
    [], [enable_debug=no])
AS_IF([test "x$enable_debug" = xyes && test "x$stepaf_user_CFLAGS" = x], [CFLAGS="-O0 -g3"])
])

AC_DEFUN([STEPAF_FLAGS_SANITIZE], [
AC_ARG_ENABLE([asan], [AS_HELP_STRING([--enable-asan], [build with AddressSanitizer])],
    [], [enable_asan=no])
AC_ARG_ENABLE([ubsan],
    [AS_HELP_STRING([--enable-ubsan], [build with UndefinedBehaviorSanitizer])],
    [], [enable_ubsan=no])
AC_ARG_ENABLE([tsan], [AS_HELP_STRING([--enable-tsan], [build with ThreadSanitizer])],
    [], [enable_tsan=no])
AS_IF([test "x$enable_asan$enable_tsan" = xyesyes],
    [AC_MSG_ERROR([--enable-asan and --enable-tsan exclude each other])])
stepaf_sanitizers=
AS_IF([test "x$enable_asan" = xyes], [stepaf_sanitizers="$stepaf_sanitizers,address"])
AS_IF([test "x$enable_ubsan" = xyes], [stepaf_sanitizers="$stepaf_sanitizers,undefined"])
AS_IF([test "x$enable_tsan" = xyes], [stepaf_sanitizers="$stepaf_sanitizers,thread"])
stepaf_sanitizers=`AS_ECHO(["$stepaf_sanitizers"]) | sed 's/^,//'`
AS_IF([test -n "$stepaf_sanitizers"], [
    AC_MSG_CHECKING([whether $CC has -fsanitize=$stepaf_sanitizers])
    stepaf_sanitize="-fsanitize=$stepaf_sanitizers"
    AS_IF([test "x$enable_ubsan" = xyes],
        [stepaf_sanitize="$stepaf_sanitize -fno-sanitize-recover=undefined"])
    stepaf_saved_CFLAGS="$CFLAGS"
    CFLAGS="$CFLAGS $stepaf_sanitize"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([$CC cannot link with $stepaf_sanitize: its run-time library is missing])])
    CFLAGS="$stepaf_saved_CFLAGS"
    STEPAF_CFLAGS="$STEPAF_CFLAGS $stepaf_sanitize -fno-omit-frame-pointer"
    STEPAF_LDFLAGS="$STEPAF_LDFLAGS $stepaf_sanitize"])
AC_SUBST([STEPAF_SANITIZERS], [$stepaf_sanitizers])
AM_CONDITIONAL([SANITIZED], [test -n "$stepaf_sanitizers"])
])
