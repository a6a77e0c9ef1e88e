# SPDX-License-Identifier: Apache-2.0
# Sourced by mpi_launch/quickstart and test/run: configure and build outside the source tree.
# Expects $top, the source tree; output goes to standard output.

build_jobs=$(nproc 2>/dev/null || echo 2)

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
        # Configured the same way before: make brings it up to date by itself.
        if [ ! -f Makefile ] || [ "$(cat .configured-with 2>/dev/null)" != "$*" ]; then
            "$top/configure" "$@" && printf '%s' "$*" >.configured-with
        fi && make -j"$build_jobs"
    ) </dev/null
}
