# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of stepaf-run. Sets $run and $directory, which has the files out and err of
# the last run, and its own $bin for launchers that are not real.

: "${top_srcdir:=.}" "${top_builddir:=.}"
run=$(cd "$top_builddir" && pwd)/stepaf-run
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
bin=$directory/bin
mkdir "$bin"
failed=0

# Nothing of a job that this may run in, and no settings.
for name in $(env | sed -n 's/^\(\(STEPAF\|SLURM\|OMPI_COMM\|PMI\|PMIX\|MPI\|CUDA\)_[A-Za-z_]*\)=.*/\1/p'); do
    unset "$name"
done

fail()
{
    echo "FAILED: $*"
    cat "$directory/out" "$directory/err"
    failed=1
}

# expect CODE COMMAND [ARGUMENT...]: run it.
expect()
{
    code=$1
    shift
    timeout -k 10 120 "$@" >"$directory/out" 2>"$directory/err" </dev/null
    is=$?
    [ "$is" -eq "$code" ] || fail "$*: exit code $is instead of $code"
}

# has FILE PATTERN: it has such a line. lacks FILE PATTERN: it has none.
has()
{
    grep -Eq -- "$2" "$directory/$1" || fail "no line in $1 like: $2"
}
lacks()
{
    if grep -Eq -- "$2" "$directory/$1"; then
        fail "there is a line in $1 like: $2"
    fi
}

# is FILE TEXT: that is all that is in it.
is()
{
    [ "$(cat "$directory/$1")" = "$2" ] || fail "$1 should be: $2"
}

# fake NAME SCRIPT: a program of this name in $bin.
fake()
{
    printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
    chmod +x "$bin/$1"
}
