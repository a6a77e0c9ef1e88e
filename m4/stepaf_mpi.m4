# SPDX-License-Identifier: Apache-2.0
#
# STEPAF_MPI: an MPI, which libstepaf_mpi and everything started by mpirun need. Tried in this
# order: DIR/bin/mpicc, $MPICC, MPI_CFLAGS and MPI_LIBS from the caller, mpicc in the path,
# pkg-config (ompi-c, mpi-c, mpich).
#
# Sets what STEPAF_PACKAGE sets, and MPIEXEC, which starts programs: the mpirun beside the wrapper, and
# never another MPI's. It is empty where there is none.
AC_DEFUN([STEPAF_MPI], [
AC_REQUIRE([PKG_PROG_PKG_CONFIG])
AC_REQUIRE([AC_PROG_SED])
AC_ARG_WITH([mpi],
    [AS_HELP_STRING([--with-mpi=check|yes|no|DIR],
        [MPI, for libstepaf_mpi and the programs that mpirun starts @<:@default=check@:>@])],
    [], [with_mpi=check])
AC_ARG_VAR([MPICC], [MPI's compiler wrapper])
AC_ARG_VAR([MPIEXEC], [MPI's mpirun, if it is not the one beside MPICC])
AC_ARG_VAR([MPI_CFLAGS], [compiler flags for mpi, overriding what is found])
AC_ARG_VAR([MPI_LIBS], [linker flags for mpi, overriding what is found])
MPI_PC=
stepaf_mpi_have=no
stepaf_mpi_path="$PATH"
stepaf_mpi_asked="--with-mpi=$with_mpi${MPICC:+ MPICC=$MPICC}"
# A wrapper that is named is asked for; no other MPI stands in for it.
stepaf_mpi_named="$MPICC"
AS_CASE([$with_mpi],
    [no|check|yes], [],
    [/*], [MPICC="$with_mpi/bin/mpicc"
           stepaf_mpi_named="$MPICC"
           stepaf_mpi_path="$with_mpi/bin"],
    [AC_MSG_ERROR([--with-mpi=$with_mpi: neither check, yes, no nor an absolute directory])])
AS_IF([test "x$with_mpi" = xno],
    [stepaf_mpi_note="no (switched off)"],
    [STEPAF_MPI_LOCATE
     STEPAF_MPI_TRY])
AS_IF([test "x$stepaf_mpi_have" = xyes],
    [STEPAF_MPI_IDENTIFY
     STEPAF_MPI_LAUNCHER
     AC_MSG_CHECKING([for the launcher of mpi])
     AC_MSG_RESULT([${MPIEXEC:-no}])
     AC_DEFINE([HAVE_MPI], [1], [Define if MPI was found.])],
    [MPI_CFLAGS= MPI_LIBS= MPI_PC= MPIEXEC=])
stepaf_mpi_name=`set dummy ${MPIEXEC:-mpirun}; AS_BASENAME(["$[]2"])`
AC_DEFINE_UNQUOTED([STEPAF_MPIEXEC_NAME], ["$stepaf_mpi_name"],
    [Name by which stepaf-run looks for a launcher first.])
STEPAF_MPI_PC_FLAGS
AM_CONDITIONAL([HAVE_MPI], [test "x$stepaf_mpi_have" = xyes])
])

# Where the flags come from. Open MPI's wrapper shows its flags by --showme:*, MPICH's and its
# descendants' by -compile_info and -link_info, with the compiler's name before them.
AC_DEFUN([STEPAF_MPI_LOCATE], [
AS_IF([test -z "$MPI_LIBS"], [
    AS_IF([test -z "$MPICC"], [AC_PATH_PROG([MPICC], [mpicc], [], [$stepaf_mpi_path])])
    AS_IF([test -n "$MPICC" && MPI_LIBS=`$MPICC --showme:link 2>/dev/null`],
        [MPI_CFLAGS=`$MPICC --showme:compile`],
        [test -n "$MPICC" && MPI_LIBS=`$MPICC -link_info 2>/dev/null`],
        [MPI_LIBS=`AS_ECHO(["$MPI_LIBS"]) | $SED 's/^@<:@^ @:>@* *//'`
         MPI_CFLAGS=`$MPICC -compile_info | $SED 's/^@<:@^ @:>@* *//'`],
        [MPI_LIBS=])])
AS_IF([test -n "$PKG_CONFIG" && test -z "$stepaf_mpi_named"],
    [for stepaf_module in ompi-c mpi-c mpich; do
        $PKG_CONFIG --exists $stepaf_module || continue
        AS_IF([test -z "$MPI_LIBS"],
            [MPI_CFLAGS=`$PKG_CONFIG --cflags $stepaf_module`
             MPI_LIBS=`$PKG_CONFIG --libs $stepaf_module`])
        # The module stands for these flags in our own pkg-config file only if it says the same.
        AS_IF([test "`$PKG_CONFIG --cflags $stepaf_module | xargs`" = \
                    "`AS_ECHO(["$MPI_CFLAGS"]) | xargs`"],
            [MPI_PC=$stepaf_module])
        break
     done])
])

# Whether they serve.
AC_DEFUN([STEPAF_MPI_TRY], [
AC_MSG_CHECKING([for mpi])
stepaf_saved_CPPFLAGS="$CPPFLAGS"
stepaf_saved_LIBS="$LIBS"
CPPFLAGS="$CPPFLAGS $MPI_CFLAGS"
LIBS="$MPI_LIBS $LIBS"
AS_IF([test -z "$MPI_LIBS"], [LIBS="-lstepaf_has_not_found_mpi"])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Init(0, 0);]])],
    [stepaf_mpi_have=yes
     stepaf_mpi_note="yes"],
    [stepaf_mpi_note="no (no mpicc that works; Debian packages: openmpi-bin libopenmpi-dev)"])
CPPFLAGS="$stepaf_saved_CPPFLAGS"
LIBS="$stepaf_saved_LIBS"
AC_MSG_RESULT([$stepaf_mpi_note])
AS_IF([test "x$stepaf_mpi_have" = xno && test "x$with_mpi$stepaf_mpi_named" != xcheck],
    [AC_MSG_ERROR([mpi was asked for by $stepaf_mpi_asked, but no mpicc there works.
Install openmpi-bin and libopenmpi-dev, or give MPI's directory; config.log has the details.])])
])

# Whose header it is, and the version: what mpirun says of itself may be another MPI's word.
AC_DEFUN([STEPAF_MPI_IDENTIFY], [
cat >conftest.c <<_ACEOF
#include <mpi.h>
#if defined(OPEN_MPI)
stepaf_mpi_is "Open MPI " OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION
#elif defined(I_MPI_VERSION)
stepaf_mpi_is "Intel MPI " I_MPI_VERSION
#elif defined(MPICH_VERSION)
stepaf_mpi_is "MPICH " MPICH_VERSION
#endif
_ACEOF
stepaf_mpi_is=`$CC $CPPFLAGS $MPI_CFLAGS -E -P conftest.c 2>&AS_MESSAGE_LOG_FD |
    $SED -n -e '/^stepaf_mpi_is/!d' -e 's/^stepaf_mpi_is *//' -e 's/"//g' -e 's/ *\. */./g' -e 's/  */ /g' -e p`
rm -f conftest.c
AS_CASE([$stepaf_mpi_is],
    ["Open MPI "*], [stepaf_mpi_signs="Open MPI|OpenRTE|PRRTE"],
    [MPICH*|Intel*], [stepaf_mpi_signs="HYDRA|Intel.R. MPI"],
    [stepaf_mpi_signs=.])
stepaf_mpi_note="yes${stepaf_mpi_is:+ ($stepaf_mpi_is)}"
])

# Beside mpicc.mpich is mpirun.mpich, beside DIR/mpicc is DIR/mpirun. Those of the path serve a
# wrapper that was not named, since a system may have them elsewhere, if they are of the same kind.
AC_DEFUN([STEPAF_MPI_LAUNCHER], [
stepaf_mpi_launchers="$MPIEXEC"
AS_IF([test -z "$MPIEXEC"], [
    stepaf_mpi_wrapper=`set dummy $MPICC; command -v "$[]2"`
    stepaf_mpi_dir=`AS_DIRNAME(["$stepaf_mpi_wrapper"])`
    stepaf_mpi_suffix=`AS_ECHO(["$stepaf_mpi_wrapper"]) | $SED -n 's,^.*/mpicc,,p'`
    AS_IF([test -n "$stepaf_mpi_wrapper"],
        [stepaf_mpi_launchers="$stepaf_mpi_dir/mpirun$stepaf_mpi_suffix $stepaf_mpi_dir/mpiexec$stepaf_mpi_suffix"])
    AS_IF([test -z "$stepaf_mpi_named"],
        [stepaf_mpi_launchers="$stepaf_mpi_launchers `command -v mpirun` `command -v mpiexec`"])
    for stepaf_mpi_launcher in $stepaf_mpi_launchers; do
        $stepaf_mpi_launcher --version 2>&1 </dev/null | grep -E "$stepaf_mpi_signs" >/dev/null || continue
        MPIEXEC=$stepaf_mpi_launcher
        break
    done])
AS_IF([test -z "$MPIEXEC"],
    [stepaf_mpi_note="$stepaf_mpi_note, no mpirun of it beside ${stepaf_mpi_wrapper:-mpi.h}"])
])

# What libstepaf_mpi.pc says: the module if there is one, else the flags themselves.
AC_DEFUN([STEPAF_MPI_PC_FLAGS], [
MPI_PC_CFLAGS=
MPI_PC_LIBS=
AS_IF([test -z "$MPI_PC"],
    [MPI_PC_CFLAGS="$MPI_CFLAGS"
     MPI_PC_LIBS="$MPI_LIBS"])
AC_SUBST([MPI_PC])
AC_SUBST([MPI_PC_CFLAGS])
AC_SUBST([MPI_PC_LIBS])
])
