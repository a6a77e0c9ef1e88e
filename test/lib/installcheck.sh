#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run by "make installcheck": what is installed serves a user who has only pkg-config. Variables:
# CC, bindir, datadir, docdir, libdir, pkgconfigdir, top_srcdir, version, HAVE_MPI, MPI_LIBS,
# HAVE_PMIX.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

export PKG_CONFIG_PATH="$pkgconfigdir:${PKG_CONFIG_PATH:-}"
export LD_LIBRARY_PATH="$libdir:${LD_LIBRARY_PATH:-}"

# Where only archives are installed, pkg-config has to be told.
static=
[ -e "$libdir/libstepaf.so" ] || static=--static

# consume MODULE [FLAG...]: compile consumer.c by the module's own word, and run it.
consume()
{
    module=$1
    shift
    [ "$(pkg-config --modversion "$module")" = "$version" ]
    # shellcheck disable=SC2046,SC2086
    $CC ${CFLAGS:-} $(pkg-config --cflags "$module") "$top_srcdir/test/lib/consumer.c" \
        -o "$directory/consumer" "$@" $(pkg-config $static --libs "$module")
    "$directory/consumer"
}

# Links from document to document lead to a file.
for document in "$docdir"/*.md "$docdir"/docs/*.md; do
    [ -e "$document" ] || { echo "$document is not installed"; exit 1; }
    sed 's/](/\n](/g' "$document" | sed -n 's/^](\([^):#]*\)[#)].*/\1/p' | while read -r link; do
        [ -z "$link" ] || [ -e "${document%/*}/$link" ] || {
            echo "$document: nothing is at $link"
            exit 1
        }
    done
done

consume libstepaf
if [ -n "${HAVE_MPI:-}" ]; then
    # shellcheck disable=SC2086
    consume libstepaf_mpi -DCONSUMER_OF_MPI ${MPI_LIBS:-}
fi
if [ -n "${HAVE_PMIX:-}" ]; then
    consume libstepaf_pmix -DCONSUMER_OF_PMIX
fi
grep -q "PACKAGE_VERSION \"$version\"" "$libdir/cmake/stepaf/stepafConfigVersion.cmake"
module=$datadir/libstepaf/modulefiles/libstepaf/$version
grep -qx "prepend-path PATH $bindir" "$module"
if command -v tclsh >/dev/null; then
    # The words of a modulefile, as far as this one has them.
    {
        echo 'foreach word {module-whatis conflict setenv prepend-path append-path} { proc $word args {} }'
        cat "$module"
    } >"$directory/module.tcl"
    tclsh "$directory/module.tcl"
fi
"$bindir/stepaf_info" --version | grep -F "$version"
"$bindir/stepaf_doctor" --version | grep -F "$version"
"$bindir/stepaf-run" --version | grep -F "$version"
"$bindir/stepaf-accept" --version | grep -Fx "stepaf-accept $version"
if command -v python3 >/dev/null; then
    "$bindir/stepaf-report" --help | grep -F -- --against
    "$bindir/stepaf-top" --once --interval 0.1 --job none | grep -F 'no libstepaf rank'
    "$bindir/stepaf-exporter" --help | grep -F -- --textfile
fi
