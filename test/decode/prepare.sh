# SPDX-License-Identifier: Apache-2.0
# Sourced by tests that run stepaf_decode: $decode; $directory, which goes at the end; $failed, and fail, which sets it
# and shows the files out and err of the directory. No launcher seems to have started what they start.
decode=$top_builddir/stepaf_decode
if [ ! -x "$decode" ]; then
    echo "skipped: stepaf_decode is not built"
    exit 77
fi
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_RANK PMI_SIZE MPI_LOCALRANKID
unset STEPAF_SPLIT STEPAF_ROLE
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

fail()
{
    echo "FAILED: $*"
    cat "$directory/out" "$directory/err"
    failed=1
}
