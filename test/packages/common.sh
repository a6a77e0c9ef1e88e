# SPDX-License-Identifier: Apache-2.0
# Sourced by debian.sh, docker.sh, easybuild.sh and rpm.sh: what an installed package is tried by. Expects $top, $work, $root.

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failed=0

step() { printf '%s %s\n' "$1" "$2"; }

# try WORDS COMMAND...: a step, whose output goes to a log that is shown if it fails.
try()
{
    words=$1
    shift
    started=$(date +%s)
    if "$@" >"$work/step.log" 2>&1; then
        step PASS "$words ($(($(date +%s) - started)) s)"
        return 0
    fi
    step FAIL "$words"
    tail -n 40 "$work/step.log"
    failed=1
    return 1
}

missing() { step SKIP "$1: $2 is not installed"; exit 77; }

# consumer LIBDIR: README's first program, built by what is installed under $root, and run.
consumer()
{
    libdir=$1
    sed "s,^prefix=/usr,prefix=$root/usr,; s,=/usr,=$root/usr," "$root$libdir"/pkgconfig/libstepaf.pc >"$work/libstepaf.pc" &&
        sed "s,^prefix=/usr,prefix=$root/usr,; s,=/usr,=$root/usr," "$root$libdir"/pkgconfig/libstepaf_mpi.pc >"$work/libstepaf_mpi.pc" &&
        cc -o "$work/push_pull" "$root"/usr/share/doc/libstepaf-dev*/examples/push_pull.c \
            $(PKG_CONFIG_PATH=$work pkg-config --cflags --libs libstepaf_mpi mpi) &&
        ldd_says "$libdir"
}

# ldd_says LIBDIR: the program takes the package's library, and prints what README says.
ldd_says()
{
    LD_LIBRARY_PATH=$root$1 ldd "$work/push_pull" | grep -q "$root$1/libstepaf.so.1" &&
        LD_LIBRARY_PATH=$root$1 STEPAF_SPLIT=attn=1,ffn=1 timeout 60 mpirun --oversubscribe -n 2 \
            -x LD_LIBRARY_PATH -x STEPAF_SPLIT "$work/push_pull" | grep -qx 42 &&
        LD_LIBRARY_PATH=$root$1 "$root/usr/bin/stepaf_info" --version
}

# no_module: a modulefile of /usr puts the system's directories in front of a site's.
no_module()
{
    module=$(find "$root" -path '*modulefiles*')
    [ -z "$module" ] || { echo "$module"; return 1; }
}

# nothing_left: of what was under $root, apart from the package system's own.
nothing_left()
{
    left=$(find "$root" ! -type d ! -path "$root/var/*" ! -path "$root/etc/*")
    [ -z "$left" ] || { echo "$left"; return 1; }
}
