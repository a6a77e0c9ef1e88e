#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What pkg-config says for a static link names every library that libtool would link.
set -u
: "${top_builddir:=.}"
if ! command -v pkg-config >/dev/null; then
    echo "skipped: pkg-config is not installed"
    exit 77
fi
PKG_CONFIG_PATH=$top_builddir/src:$top_builddir/mpi_launch:${PKG_CONFIG_PATH:-}
export PKG_CONFIG_PATH
failed=0

# check MODULE
check()
{
    if ! said=$(pkg-config --static --libs "$1" 2>&1); then
        echo "$1: $said"
        failed=1
        return
    fi
    for word in $(sed -n "s/^dependency_libs='\(.*\)'$/\1/p" "$top_builddir/$1.la"); do
        case $word in
        -l*) ;;
        *) continue ;;
        esac
        case " $said " in
        *" $word "*) ;;
        *)
            echo "$1.pc: $word is missing: $said"
            failed=1
            ;;
        esac
    done
}

check libstepaf
[ -z "${HAVE_MPI:-}" ] || check libstepaf_mpi
[ -z "${HAVE_PMIX:-}" ] || check libstepaf_pmix
exit $failed
