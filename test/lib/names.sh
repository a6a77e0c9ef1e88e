#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No static function of src has the name of another one, in another file: who searches, and who reads a
# backtrace, finds one function. Callbacks of a table may, whose name is that of their place: in each of the
# files ".field = name" is one of the lines. Then such names are planted, and have to be found.
set -u
: "${top_srcdir:=.}"
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

# judge DIRECTORY: "NAME: FILE FILE ..." for each name that is not to be; how many there are in all.
judge()
{
    (cd "$1" && find . -name '*.c' | sort | xargs awk '
        FNR == 1 { head = "" }
        /^static / { head = " " }
        head != "" {
            head = head $0 " "
            if ($0 ~ /[{;]$/) {
                gsub(/__attribute__\(\([^)]*(\([^)]*\))?[^)]*\)\)/, "", head)
                sub(/\(.*/, "", head)
                if (head !~ /[=;{]/ && match(head, /[A-Za-z_0-9]+$/)) {
                    name = substr(head, RSTART)
                    if (!((name, FILENAME) in seen)) {
                        seen[name, FILENAME] = 1
                        files[name] = files[name] " " FILENAME
                        n[name]++
                    }
                }
                head = ""
            }
        }
        {
            for (rest = $0; match(rest, /\.[a-z_0-9]+ = [A-Za-z_0-9]+[,;]/); rest = substr(rest, RSTART + RLENGTH)) {
                name = substr(rest, RSTART, RLENGTH - 1)
                sub(/.* /, "", name)
                entered[name, FILENAME] = 1
            }
        }
        # is_callback: in each of its files it is entered in a table.
        function is_callback(name,  i, list, n_files) {
            n_files = split(files[name], list, " ")
            for (i = 1; i <= n_files; i++)
                if (!((name, list[i]) in entered))
                    return 0
            return 1
        }
        END {
            for (name in n) {
                total++
                if (n[name] > 1 && !is_callback(name)) {
                    gsub(/ \.\//, " ", files[name])
                    print name ":" files[name] | "sort"
                    failed = 1
                }
            }
            close("sort")
            print total + 0, "static functions"
            exit failed || !total
        }')
}

judge "$top_srcdir/src" || failed=1

# plant FILE LINE...
plant()
{
    file=$directory/$1
    shift
    printf '%s\n' "$@" >"$file"
}
plant a.c 'static int callback(void)' '{' '}' 'static bool twice(int x,' '                   int y);' \
    'const struct table a = {' '    .run = callback,' '};'
plant b.c 'static __attribute__((noinline)) void callback(void)' '{' '}' 'static inline int half(int x)' '{' '}' \
    'const struct table b = {' '    .run = callback,' '    .half = half,' '};' 'static int once = f(1);'
plant c.c 'static int twice(int x)' '{' '}' 'static int half(int x)' '{' '}' 'static int once = f(1);'
# What another file enters does not make it a callback in these.
plant d.c '    .x = half,' '    .y = half,'
plant e.c '    .x = half;'
judge "$directory" >"$directory/found" && failed=1
if ! printf '%s\n' 'half: b.c c.c' 'twice: a.c c.c' '3 static functions' | diff - "$directory/found"; then
    echo "not what was planted"
    failed=1
fi
exit $failed
