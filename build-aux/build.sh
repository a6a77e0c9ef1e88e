# SPDX-License-Identifier: Apache-2.0
# Sourced by mpi_launch/quickstart and test/run: configure and build outside the source tree.
# Expects $top, the source tree; output goes to standard output.

build_jobs=$(nproc 2>/dev/null || echo 2)

# All that is compiled, linked and tested goes through scripts of configure's shell, for which dash takes a quarter of
# bash's time.
if [ -z "${CONFIG_SHELL:-}" ] && CONFIG_SHELL=$(command -v dash); then
    export CONFIG_SHELL
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
build_in() { build_configure "$@" && make -C "$1" -j"$build_jobs" </dev/null; }

# build_depfiles: the files, here, that tell on what headers an object depends, empty. Otherwise configure has make write each
# by two programs, which takes more than half of its time.
build_depfiles()
{
    sed -n 's,^[^#]*\(remade = \|	\)\([^ ]*\)/$(DEPDIR)/\([^ ]*\.P[lo]*\).*,\2/.deps/\3,p' "$top/Makefile.in" | sort -u |
        while read -r file; do
            [ -d "${file%/*}" ] || mkdir -p "${file%/*}"
            [ -e "$file" ] || echo '# dummy' >"$file"
        done
}

# build_configure DIRECTORY [CONFIGURE-ARGUMENT...]: if that is not done.
build_configure()
{
    mkdir -p "$1"
    (
        cd "$1" || exit 1
        shift
        # Configured the same way before: make brings it up to date by itself. Otherwise nothing that
        # was made serves: make does not know that it was compiled for another MPI.
        with="$* ${MPICC:+MPICC=$MPICC }${CC:+CC=$CC }${CFLAGS:+CFLAGS=$CFLAGS}"
        if [ ! -f Makefile ] || [ "$(cat .configured-with 2>/dev/null)" != "$with" ]; then
            if [ -f Makefile ]; then
                make -s clean
            fi
            build_depfiles
            "${CONFIG_SHELL:-sh}" "$top/configure" "$@" && printf '%s' "$with" >.configured-with
        fi
    ) </dev/null
}
