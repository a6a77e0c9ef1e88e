#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts that fail, one after the other: each says why in one line, word by word, on every rank, and
# ends with an exit code.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
. "$top_srcdir/test/mpi/env.sh"
. "$top_srcdir/test/mpi/startup_try.sh"
[ -z "${SANITIZERS:-}" ] || { echo "skipped: sanitizer builds fork their ranks"; exit 77; }
command -v "$mpiexec" >/dev/null || { echo "skipped: $mpiexec is not installed"; exit 77; }

directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
out=$directory/out
map=$directory/map
startup=$top_builddir/test/mpi/startup
unset STEPAF_SPLIT STEPAF_ROLE
limit="timeout -k 5 30"
run="sh $top_srcdir/test/mpi/start.sh $limit $mpiexec $mpiexec_flags"
syntax="the syntax is attn=N,ffn=M[,interleave], one side may be left out, N is a count or \
per-node:COUNT; or map=FILE"
norole="no role for rank 0: all ranks have application number 0, as under srun and with one \
program; set a split (such as STEPAF_SPLIT"
each="or STEPAF_ROLE for each program"
version=$(sed -n 's/^version=//p; 1{/^[0-9]/p}' "$top_srcdir/VERSION" | head -n 1)
wire=$(sed -n 's/.*STEPAF_WIRE_VERSION = \([0-9]*\).*/\1/p' "$top_srcdir/src/wireup/hello.h")
a_line='each line must be "attention" or "ffn"'
agreed=STEPAF_SPLIT=attn=2,ffn=2

# Words of $run and $limit are split on purpose.
# shellcheck disable=SC2086
{
# A start of the same kind works, so that what follows fails for its own reason.
env $agreed $run -n 4 "$startup" || { echo "FAILED: a start that has to work"; exit 1; }

try "no launcher" "the job has one process, but requires at least one of each role: start several \
with mpirun, srun or stepaf-run" $limit "$startup"
try "no role for anybody" "$norole=attn=2,ffn=2), $each" \
    $run -n 4 "$startup"
try "FFN count 0" \
    "split \"attn=4,ffn=0\": each count must be a number from 1 to 16777216; $syntax" \
    env STEPAF_SPLIT=attn=4,ffn=0 $run -n 4 "$startup"
try "a split for another number of ranks" \
    "split \"attn=2,ffn=1\": 2 + 1 ranks are not the job's 4 ranks; $syntax" \
    env STEPAF_SPLIT=attn=2,ffn=1 $run -n 4 "$startup"
try "all ranks of one role" "all 4 ranks have the role FFN \
(STEPAF_ROLE or params.role): a job requires both roles" \
    env STEPAF_ROLE=ffn $run -n 4 "$startup"
try "map file that is missing" \
    "map file: cannot open $directory/none: No such file or directory; $a_line" \
    env STEPAF_SPLIT=map="$directory/none" $run -n 4 "$startup"
printf 'attention\nffn\n' >"$map"
try "map file with too few lines" "map file: the file has 2 ranks, and the job has 4; $a_line" \
    env STEPAF_SPLIT=map="$map" $run -n 4 "$startup"
printf 'attention\nffn\nffn\nffn\nffn\n' >"$map"
try "map file with too many lines" \
    "map file: line 5 is beyond the job's 4 ranks; $a_line" \
    env STEPAF_SPLIT=map="$map" $run -n 4 "$startup"
printf 'attention\nattention ffn\nffn\nffn\n' >"$map"
try "two roles for one rank" "map file: line 2 is \"attention ffn\"; $a_line" \
    env STEPAF_SPLIT=map="$map" $run -n 4 "$startup"
try "a role of its own that the split does not give" \
    "split \"attn=2,ffn=2\" makes 2 attention and 2 FFN ranks, but with the ranks' own \
roles (STEPAF_ROLE) there are 1 and 3" \
    env $agreed $run -n 1 env STEPAF_ROLE=ffn "$startup" : -n 3 "$startup"
try "a number out of range" "STEPAF_DEPTH=33: out of range; it takes 1..32 buffers" \
    env $agreed STEPAF_DEPTH=33 $run -n 4 "$startup"
try "a word that is none" "STEPAF_PROGRESS=both: not one of its words; it takes inline|thread" \
    env $agreed STEPAF_PROGRESS=both $run -n 4 "$startup"
try "cores that do not exist" \
    "STEPAF_PROGRESS_CORES: cannot bind a thread to cores 900: this process may use none of them" \
    env $agreed STEPAF_PROGRESS_CORES=900 $run -n 4 "$startup"
try "a transport of no build" "STEPAF_TRANSPORTS: \"pigeon\" is not a transport of this build" \
    env $agreed STEPAF_TRANSPORTS=pigeon $run -n 4 "$startup"
try "settings that differ" "STEPAF_DEPTH differs: \"2\" at rank 0, \"1\" at rank 3" \
    env $agreed $run -n 3 env STEPAF_DEPTH=2 "$startup" : -n 1 "$startup"
try "splits that differ" \
    "STEPAF_SPLIT or params.split differs: \"attn=3,ffn=1\" at rank 0, \"attn=2,ffn=2\" at rank 3" \
    env $agreed $run -n 3 env STEPAF_SPLIT=attn=3,ffn=1 "$startup" : -n 1 "$startup"
try "a secret at some ranks" "STEPAF_SECRET or STEPAF_SECRET_FILE is set at rank 0, and neither at rank 3: \
does the launcher pass it to all hosts?" \
    env $agreed $run -n 3 env STEPAF_SECRET=known-to-some "$startup" : -n 1 "$startup"
try "one rank of another version" "libstepaf differs: $version (wire version $wire) at rank 0, \
$version (wire version $((wire ^ 64))) at rank 1" \
    env STEPAF_SPLIT=attn=1,ffn=1 $limit "$startup" --fork 2 --version 1
late="MPI bootstrap: duplicating the communicator: some rank did not arrive in time"
try "a rank that never comes" "$late: no word from rank 2: STEPAF_INIT_TIMEOUT_US is 4000000 us" \
    env $agreed STEPAF_INIT_TIMEOUT_US=4000000 $run -n 4 "$startup" --late 2
}
echo "$try_count starts"
exit $try_failed
