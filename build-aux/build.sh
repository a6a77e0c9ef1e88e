# SPDX-License-Identifier: Apache-2.0
# Sourced by mpi_launch/quickstart and test/run: configure and build outside the source tree.
# Expects $top, the source tree; output goes to standard output.

build_jobs=$(nproc 2>/dev/null || echo 2)

# What else make is to be told: all that is compiled and linked goes through libtool, a script for which dash
# takes a quarter of bash's time.
build_flags=
if build_dash=$(command -v dash); then
    build_flags="LIBTOOL=$build_dash ./libtool"
fi

# build_generate: make ./configure if it is missing. Later changes are make's own affair.
build_generate()
{
    if [ -e "$top/config.status" ]; then
        echo "The source tree itself is configured: run 'make distclean' in it first."
        return 1
    fi
    if [ ! -x "$top/configure" ] || [ ! -f "$top/Makefile.in" ]; then
        "$top/autogen.sh"
    fi
}

# build_in DIRECTORY [CONFIGURE-ARGUMENT...]
build_in()
{
    directory=$1
    shift
    mkdir -p "$directory"
    (
        cd "$directory" || exit 1
        # Configured the same way before: make brings it up to date by itself. Otherwise nothing that
        # was made serves: make does not know that it was compiled for another MPI.
        with="$* ${MPICC:+MPICC=$MPICC }${CC:+CC=$CC }${CFLAGS:+CFLAGS=$CFLAGS}"
        if [ ! -f Makefile ] || [ "$(cat .configured-with 2>/dev/null)" != "$with" ]; then
            if [ -f Makefile ]; then
                make -s clean
            fi
            "$top/configure" "$@" && printf '%s' "$with" >.configured-with
        fi && make -j"$build_jobs" ${build_flags:+"$build_flags"}
    ) </dev/null
}
