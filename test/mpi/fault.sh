#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The fault test under mpirun, told not to kill the other ranks when one dies. It then reports no
# rank's exit code, so that what counts is the verdict that the survivors print.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
. "$top_srcdir/test/mpi/env.sh"

[ -z "${SANITIZERS:-}" ] || { echo "sanitizer builds fork their ranks: see fault.case"; exit 77; }
case $mpiexec_flags in
*oversubscribe*) ;;
*) echo "not an mpirun that is known to let the others live"; exit 77 ;;
esac
export OMPI_MCA_orte_enable_recovery=1 PRTE_MCA_prte_enable_recovery=1
: "${TEST_TIMEOUT_S:=90}"

skipped=0
for name in ffn-held ffn-load attention leftover finalize commit barrier stopped crowded; do
    echo "== $name"
    # shellcheck disable=SC2086
    said=$(mpi_run 4 ${TEST_WRAP:-} "$top_builddir/test/mpi/fault" \
        --split attn=2,ffn=2 --case "$name" 2>&1)
    case $said in
    *"PASS fault"*) ;;
    *"SKIP fault"*) skipped=$((skipped + 1)) ;;
    *)
        echo "$said"
        exit 1
        ;;
    esac
done
[ "$skipped" -lt 9 ] || exit 77
