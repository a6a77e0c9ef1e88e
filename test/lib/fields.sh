#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No struct has more than 25 fields: what belongs together is a struct in it, with a name. Read from the sources,
# since not every build has debug information. Members of a struct or union without a name count as those of the
# one around it. Tables of functions (NAME_ops, NAME_provider) may have more functions: each of them is filled in
# place by place, with the field's name beside the function's, and passed on by one pointer; what else they have
# counts. struct stepaf_env is made of the tables of settings, a field for each: so these are counted, and each
# settings.def has as many at most. Then structs are planted, and have to be found.
set -u
: "${top_srcdir:=.}"
most=25
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

# judge DIRECTORY...: "FIELDS FILE NAME" for each struct that has too many, then how many structs there are in
# all and what the largest has.
judge()
{
    find "$@" \( -name '*.[ch]' -o -name '*.cc' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) | sort |
        xargs awk -v most=$most '
        # A file is read as a whole: comments, strings and the preprocessor go, then braces are followed.
        function flush_file() {
            if (text != "")
                structs(text)
            text = ""
        }
        # declarators: how many a declaration has, which ends at its semicolon.
        function declarators(it,  i, c, inside, n) {
            if (it !~ /[A-Za-z_0-9]/)
                return 0
            n = 1
            for (i = 1; i <= length(it); i++) {
                c = substr(it, i, 1)
                if (c ~ /[(\[]/)
                    inside++
                else if (c ~ /[)\]]/)
                    inside--
                else if (c == "," && !inside)
                    n++
            }
            return n
        }
        # field: add what a declaration declares to the struct or union that is open.
        function field(it) {
            if (it ~ /\(\*[A-Za-z_0-9 ]*\)\(/ && name[depth] ~ /_(ops|provider)$/)
                return
            if (it ~ /^[ \t]*(static|typedef|using|friend|enum[ \t]*$)/ || it ~ /^[^(]*[A-Za-z_0-9~]\(/)
                return # members of C++ that take no room
            fields[depth] += declarators(it)
        }
        function structs(all,  token, rest, head, body) {
            depth = 0
            head = ""
            while (match(all, /[{};]/)) {
                token = substr(all, RSTART, 1)
                head = head substr(all, 1, RSTART - 1)
                all = substr(all, RSTART + 1)
                if (token == "{") {
                    depth++
                    fields[depth] = 0
                    is[depth] = 0
                    name[depth] = ""
                    if (head ~ /(^|[^A-Za-z_0-9])(struct|union)[^;=()]*$/) {
                        is[depth] = 1
                        name[depth] = head
                        sub(/.*(struct|union)[ \t]*/, "", name[depth])
                        sub(/^__attribute__.*\)\)[ \t]*/, "", name[depth])
                        sub(/[ \t:].*/, "", name[depth])
                    }
                    head = ""
                } else if (token == ";") {
                    if (is[depth])
                        field(head)
                    head = ""
                } else {
                    head = ""
                    if (is[depth]) {
                        total++
                        if (fields[depth] > largest)
                            largest = fields[depth]
                        if (fields[depth] > most)
                            print fields[depth], file, name[depth] == "" ? "-" : name[depth]
                        # With no name at all, it is part of what is around it; with one before it alone, a
                        # type, and no field.
                        if (all ~ /^[ \t]*;/ && depth > 1 && is[depth - 1]) {
                            if (name[depth] == "")
                                fields[depth - 1] += fields[depth]
                            sub(/^[ \t]*;/, "", all)
                            depth--
                            head = ""
                            continue
                        }
                    }
                    depth--
                    # What comes up to the semicolon declares a field of this type, or none.
                    if (depth && is[depth] && is[depth + 1])
                        head = "type"
                }
            }
        }
        FNR == 1 { flush_file(); file = FILENAME; comment = macro = 0 }
        {
            line = $0
            if (macro || (!comment && line ~ /^[ \t]*#/)) {
                macro = line ~ /\\$/
                next
            }
            out = ""
            while (line != "") {
                if (comment) {
                    if (!(at = index(line, "*/")))
                        break
                    line = substr(line, at + 2)
                    comment = 0
                } else if (match(line, /\/\*|\/\/|"|\047/)) {
                    mark = substr(line, RSTART, RLENGTH)
                    out = out substr(line, 1, RSTART - 1)
                    line = substr(line, RSTART + RLENGTH)
                    if (mark == "/*")
                        comment = 1
                    else if (mark == "//")
                        break
                    else if (match(line, mark == "\"" ? "^([^\"\\\\]|\\\\.)*\"" : "^([^\047\\\\]|\\\\.)*\047"))
                        line = substr(line, RLENGTH + 1)
                } else {
                    out = out line
                    break
                }
            }
            text = text out " "
        }
        END {
            flush_file()
            print total + 0, "structs, the largest with", largest + 0, "fields"
        }'
}

judge "$top_srcdir/include" "$top_srcdir/src" "$top_srcdir/mpi_launch" "$top_srcdir/tools" "$top_srcdir/bench" \
    "$top_srcdir/python" >"$directory/found" || failed=1
cat "$directory/found"
[ "$(wc -l <"$directory/found")" -eq 1 ] || failed=1

# settings DIRECTORY: "SETTINGS FILE" for each table of settings that has too many; then how many tables there are.
settings()
{
    find "$1" -name settings.def | sort | xargs awk -v most=$most '
        FNR == 1 { files++ }
        /^(INT|ENUM|STR)\(/ { n[FILENAME]++ }
        END {
            for (file in n)
                if (n[file] > most)
                    print n[file], file | "sort"
            close("sort")
            print files + 0, "tables of settings"
        }'
}

settings "$top_srcdir/src" >"$directory/found" || failed=1
cat "$directory/found"
[ "$(wc -l <"$directory/found")" -eq 1 ] && ! grep -q '^0 ' "$directory/found" || failed=1

# planted FIELDS: so many fields, one a line.
planted() { awk -v n="$1" 'BEGIN { for (i = 1; i <= n; i++) print "    int f" i "; /* } */" }'; }
mkdir "$directory/sources" || exit 99
{
    echo 'struct fits {'
    planted 23
    echo '    struct { int a, b; } inner; struct { struct type { int c; }; } also; };'
    echo 'struct large {'
    planted 26
    printf '%s\n' '};' 'struct hides {' '    union { int u; struct {'
    planted 24
    printf '%s\n' '    }; }; char last[2][3]; };' 'struct around { struct {'
    planted 26
    printf '%s\n' '} inner; };' 'struct lists { int (*functions[9])(int a, int b), *a, b[4],'
    awk 'BEGIN { for (i = 1; i <= 22; i++) print "    l" i "," }'
    printf '%s\n' '    last; };' 'struct table_ops {'
    awk 'BEGIN { for (i = 1; i <= 40; i++) print "    void *(*f" i ")(int a, int b);" }'
    planted 25
    printf '%s\n' '};' 'struct more_ops { void (*f)(void);'
    planted 26
    printf '%s\n' '};' '#define NONE struct none { \' 'static char text[] = "struct none {", brace = 0;'
} >"$directory/sources/planted.h"
printf '%s\n' '26 planted.h large' '26 planted.h hides' '26 planted.h -' '26 planted.h lists' '26 planted.h more_ops' \
    '13 structs, the largest with 26 fields' >"$directory/expected"
judge "$directory/sources" >"$directory/found"
if ! sed "s,$directory/sources/,," "$directory/found" | diff - "$directory/expected"; then
    echo "not what was planted"
    failed=1
fi
mkdir "$directory/sources/a" "$directory/sources/b" || exit 99
awk 'BEGIN { for (i = 1; i <= 25; i++) print "INT(A" i ", a)" }' >"$directory/sources/a/settings.def"
awk 'BEGIN { for (i = 1; i <= 26; i++) print (i % 2 ? "STR" : "ENUM") "(B" i ", b)" }' >"$directory/sources/b/settings.def"
if [ "$(settings "$directory/sources" | sed "s,$directory/sources/,,")" != "26 b/settings.def
2 tables of settings" ]; then
    echo "no settings.def that is too long was found"
    failed=1
fi
exit $failed
