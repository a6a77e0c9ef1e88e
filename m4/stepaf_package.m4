# SPDX-License-Identifier: Apache-2.0
#
# STEPAF_PACKAGE(NAME, WHAT, PKG-CONFIG-MODULE, LIBS, DEBIAN-PACKAGE, HEADER, CALL, [DEFAULT-DIR])
#
# Looks for one library and adds --with-NAME=check|yes|no|DIR. WHAT says what it is for. Tried in
# this order: DIR; NAME_CFLAGS and NAME_LIBS from the caller; pkg-config; DEFAULT-DIR; the compiler's
# own paths. What is found has to link a program of HEADER and CALL. Flags are restored.
#
# Sets NAME_CFLAGS and NAME_LIBS (substituted), NAME_PC (the pkg-config module, where that is how
# it was found), the conditional HAVE_NAME and the macro of the same name in config.h;
# stepaf_NAME_have is yes or no, and stepaf_NAME_note says what was found or what is missing.
# Asked for and absent is an error.
AC_DEFUN([STEPAF_PACKAGE], [
AC_REQUIRE([PKG_PROG_PKG_CONFIG])
AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1=check|yes|no|DIR], [$2 @<:@default=check@:>@])],
    [], [with_$1=check])
AC_ARG_VAR(m4_toupper([$1])[_CFLAGS], [compiler flags for $1, overriding what is found])
AC_ARG_VAR(m4_toupper([$1])[_LIBS], [linker flags for $1, overriding what is found])
STEPAF_PACKAGE_LOCATE([$1], [$3], [$4], [$6], [$8])
AS_IF([test "x$with_$1" != xno],
    [STEPAF_PACKAGE_TRY([$1], [$5], [$6], [$7])],
    [stepaf_$1_have=no
     stepaf_$1_note="no (switched off)"])
AS_IF([test "x$stepaf_$1_have" = xyes],
    [AC_DEFINE([HAVE_]m4_toupper([$1]), [1], [Define if $1 was found: $2.])],
    [m4_toupper([$1])[_CFLAGS=]
     m4_toupper([$1])[_LIBS=]
     m4_toupper([$1])[_PC=]])
AC_SUBST(m4_toupper([$1])[_PC])
AM_CONDITIONAL([HAVE_]m4_toupper([$1]), [test "x$stepaf_$1_have" = xyes])
])

# STEPAF_PACKAGE_LOCATE(NAME, PKG-CONFIG-MODULE, LIBS, HEADER, DEFAULT-DIR): where the flags come from.
AC_DEFUN([STEPAF_PACKAGE_LOCATE], [
m4_toupper([$1])[_PC=]
stepaf_$1_version=
stepaf_$1_dir=
AS_CASE([$with_$1],
    [yes|check], [
        AS_IF([test -n "$m4_toupper([$1])[]_LIBS"], [stepaf_$1_version="as given"],
            [m4_ifval([$2], [test -n "$PKG_CONFIG" && $PKG_CONFIG --exists "$2"], [false])],
            [m4_toupper([$1])[_PC="$2"]
             m4_toupper([$1])[_CFLAGS=`$PKG_CONFIG --cflags "$2"`]
             m4_toupper([$1])[_LIBS=`$PKG_CONFIG --libs "$2"`]
             stepaf_$1_version=`$PKG_CONFIG --modversion "$2"`],
            m4_ifval([$5], [[test -d "$5"], [stepaf_$1_dir="$5"],])
            [m4_toupper([$1])[_LIBS="$3"]])],
    [no], [],
    [/*], [stepaf_$1_dir="$with_$1"],
    [AC_MSG_ERROR([--with-$1=$with_$1: neither check, yes, no nor an absolute directory])])
# The header has to be in DIR itself: else the link below could be satisfied by another one.
AS_IF([test -n "$stepaf_$1_dir"], [
    stepaf_$1_version="in $stepaf_$1_dir"
    stepaf_$1_libdir="$stepaf_$1_dir/lib"
    test -d "$stepaf_$1_dir/lib64" && stepaf_$1_libdir="$stepaf_$1_dir/lib64"
    AS_IF([test "x$stepaf_$1_dir" = x/usr],
        [m4_toupper([$1])[_LIBS="$3"]],
        [test -f "$stepaf_$1_dir/include/$4"],
        [m4_toupper([$1])[_CFLAGS="-I$stepaf_$1_dir/include"]
         m4_toupper([$1])[_LIBS="-L$stepaf_$1_libdir -Wl,-rpath,$stepaf_$1_libdir $3"]],
        [m4_toupper([$1])[_LIBS="-lstepaf_has_not_found_$1"]])])
])

# STEPAF_PACKAGE_TRY(NAME, DEBIAN-PACKAGE, HEADER, CALL): whether the flags serve.
AC_DEFUN([STEPAF_PACKAGE_TRY], [
AC_MSG_CHECKING([for $1])
stepaf_saved_CPPFLAGS="$CPPFLAGS"
stepaf_saved_LIBS="$LIBS"
CPPFLAGS="$CPPFLAGS $m4_toupper([$1])[]_CFLAGS"
LIBS="$m4_toupper([$1])[]_LIBS $LIBS"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <$3>]], [$4])],
    [stepaf_$1_have=yes
     stepaf_$1_note="yes${stepaf_$1_version:+ ($stepaf_$1_version)}"],
    [stepaf_$1_have=no
     stepaf_$1_note="no (header or library not found; Debian package: $2)"])
CPPFLAGS="$stepaf_saved_CPPFLAGS"
LIBS="$stepaf_saved_LIBS"
AC_MSG_RESULT([$stepaf_$1_note])
AS_IF([test "x$stepaf_$1_have" = xno && test "x$with_$1" != xcheck],
    [AC_MSG_ERROR([$1 was asked for by --with-$1=$with_$1, but is not found
or does not link. Install $2, or give its directory; config.log has the details.])])
])

# STEPAF_PACKAGE_NEEDED(NAME, DEBIAN-PACKAGE): nothing can be built without it.
AC_DEFUN([STEPAF_PACKAGE_NEEDED], [
AS_IF([test "x$stepaf_$1_have" != xyes],
    [AC_MSG_ERROR([$1 is needed: install $2, or say where it is by --with-$1=DIR])])
])
