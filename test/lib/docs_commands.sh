#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands in README.md and docs, run as they stand there, against an installation: docs_commands.list
# says of each block how it is tried, and a block that it does not know fails.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
if [ -n "${SANITIZERS:-}" ]; then
    echo "skipped: a sanitizer's libraries are not for programs without"
    exit 77
fi
top_srcdir=$(cd "$top_srcdir" && pwd)
top_builddir=$(cd "$top_builddir" && pwd)
here=$top_srcdir/test/lib
list=$here/docs_commands.list
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
log=$directory/log
. "$here/staged.sh"
. "$top_srcdir/test/mpi/env.sh"
export PATH="$directory/moved/bin:$PATH"
# What documents say where there are fewer cores than ranks.
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
unset CFLAGS CXXFLAGS LDFLAGS MAKEFLAGS
version=$(sed -n 's/^version=//p' "$top_srcdir/VERSION")
failed=0
ran=0
kept=

fail()
{
    echo "FAILED: $*"
    failed=1
}

# blocks DOCUMENT: its blocks as files: sh-1, sh-2, c-1 and so on, and said-1, the text behind sh-1.
blocks()
{
    rm -rf "$directory/blocks"
    mkdir "$directory/blocks"
    awk -v out="$directory/blocks/" '
        /^```/ && file { close(file); file = ""; next }
        /^```/ {
            language = substr($0, 4)
            if (language != "") {
                file = out language "-" (++count[language])
                if (language != last) since = 0
                last = language
            } else if (last == "sh" && !since)
                file = out "said-" count["sh"]
            else
                file = out "text"
            since = language == ""
            printf "" >file
            next
        }
        file { print >file }' "$1"
}

# how DOCUMENT BLOCK: what the list says.
how() { sed -n "s,^$1 $2 ,,p" "$list" | grep -v '^save \|^is '; }

# perform DOCUMENT: the script that has its blocks, and then what it has said.
perform()
{
    [ -s "$directory/script" ] || return 0
    work=$directory/work
    rm -rf "$work"
    mkdir "$work"
    cp "$top_srcdir"/examples/*.[ch] "$top_srcdir"/examples/*.cu "$here/consumer.c" "$work"
    for program in program attention ffn; do
        cp "$directory/program" "$work/$program"
    done
    # Where documents name a map, their jobs have 4 ranks, or 6.
    printf 'attention\nffn\nattention\nffn\n' >"$work/roles.txt"
    [ "$1" = docs/start.md ] || printf 'attention\nattention\n' >>"$work/roles.txt"
    sed "s,^,$1 ," "$list" | while read -r _ document number word language file; do
        [ "$document $word" != "$1 save" ] || cp "$directory/blocks/$language-$number" "$work/$file"
    done
    (cd "$work" && timeout -k 10 250 sh -e "$directory/script") >"$log" 2>&1 </dev/null
    status=$?
    [ $status -eq 0 ] || { fail "$1: exit code $status"; cat "$log"; }
    for said in "$directory"/blocks/said-*; do
        number=${said##*-}
        case $(how "$1" "$number") in
        says*) ;;
        *) continue ;;
        esac
        sed -n "/^@@ $number\$/,/^@@ /p" "$log" >"$directory/section"
        while read -r line; do
            [ -z "$line" ] || grep -qxF -- "$line" "$directory/section" ||
                { fail "$1: block $number does not print: $line"; cat "$directory/section"; }
        done <"$said"
    done
}

# A program of whatever number of ranks, started by whatever there is.
# shellcheck disable=SC2046
cc -o "$directory/program" "$top_srcdir/examples/engine.c" $(pkg-config --cflags --libs libstepaf) ||
    fail "the program that documents start"
have_mpirun=
[ -z "${HAVE_PMIX:-}" ] || ! command -v mpirun >/dev/null || [ -n "$mpiexec_lacks_pmix" ] || have_mpirun=1

for document in README.md $(cd "$top_srcdir" && ls docs/*.md); do
    blocks "$top_srcdir/$document"
    : >"$directory/script"
    for block in $(cd "$directory/blocks" && ls | grep '^sh-' | sort -t - -k 2n); do
        number=${block#sh-}
        way=$(how "$document" "$number")
        what=$directory/blocks/$block
        case $way in
        "") fail "$document: test/lib/docs_commands.list does not have block $number: $(head -n 1 "$what")" ;;
        by\ *) [ -e "$top_srcdir/${way#by }" ] || fail "$document: there is no ${way#by }" ;;
        not\ *) ;;
        with\ *)
            if command -v "${way#with }" >/dev/null; then
                way=run
            else
                kept="$kept; $document $number takes ${way#with }"
            fi
            ;;
        run* | says) ;;
        *) fail "$document $number: $way" ;;
        esac
        case $way in
        run* | says) ;;
        *) continue ;;
        esac
        pattern=$(echo "$way" | sed -n 's/^run except \([^:]*\): .*/\1/p')
        [ -z "$pattern" ] || sed -i -e "/$pattern/d" "$what"
        if grep -q '^mpirun .* : ' "$what" && mpi_breaks_apps; then
            kept="$kept; $document $number: this mpirun crashes where it is to start two programs"
            sed -i -e 's/^mpirun .* : .*/true/' "$what"
        fi
        if [ -z "$have_mpirun" ] && grep -q 'mpirun\|stepaf-run' "$what"; then
            kept="$kept; $document $number takes mpirun with PMIx"
            continue
        fi
        ran=$((ran + 1))
        open="(" close=")"
        [ "$(how "$document" 0)" != "one shell" ] || open= close=
        { echo "echo @@ $number"; echo "$open"; cat "$what"; echo "$close"; } >>"$directory/script"
    done
    perform "$document"
done

# Completion, as bash does it.
completes()
{
    COMP="$directory/moved/share/bash-completion/completions/$1" bash -c '. "$COMP" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) &&
        _stepaf "$1" && printf "%s\n" "${COMPREPLY[@]}"' bash "$@" >"$log" 2>&1
    grep -qx -- "$expected" "$log" || { fail "bash completes $* to:"; cat "$log"; }
}
if command -v bash >/dev/null; then
    expected=--settings completes stepaf_info --set
    expected=--launcher completes stepaf-run -a 1 --lau
    expected=jitter completes stepaf_doctor jit
    expected=--list completes stepaf_doctor --li
    expected=STEPAF_DEPTH= completes stepaf-run STEPAF_DEP
fi

# Blocks that are files of the tree.
while read -r document number word language file; do
    [ "$word" = is ] || continue
    blocks "$top_srcdir/$document"
    cmp "$directory/blocks/$language-$number" "$top_srcdir/$file" || fail "$document: not what is in $file"
done <"$list"

for file in conda/meta.yaml easybuild/libstepaf.eb kubernetes/stepaf.yaml; do
    ! sed -n "s/^version = '\(.*\)'$/\1/p; s/^ *image: stepaf:\(.*\)/\1/p" "$top_srcdir/packaging/$file" |
        grep -vx "$version" || fail "packaging/$file has another version than VERSION"
done

# What the list names is there.
grep -v '^#' "$list" | while read -r document number way _; do
    case $way in
    save | one | is) continue ;;
    esac
    [ "$(grep -cx '```sh' "$top_srcdir/$document")" -ge "$number" ] || echo "$document has no block $number"
done >"$log"
[ ! -s "$log" ] || fail "$(cat "$log")"

[ $failed -eq 0 ] || exit 1
echo "$ran blocks of commands do what the documents say${kept:+, but for those left out$kept}"
