#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No public header begins with more than 25 lines of prose: what takes more is a manual page. All comments count
# that stand before the first declaration. Then such headers are planted, and have to be found.
set -u
: "${top_srcdir:=.}"
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

# judge DIRECTORY: "LINES HEADER" for each that has too many or none; how many headers there are in all.
judge()
{
    # version.h is made from version.h.in
    find "$1" \( -name '*.h' -o -name '*.hpp' -o -name '*.h.in' \) ! -name version.h | sort | xargs awk '
        function end() {
            if (header == "")
                return
            n++
            if (lines < 1 || lines > 25) {
                print lines, header
                failed = 1
            }
        }
        FNR == 1 { end(); header = FILENAME; lines = comment = declared = 0 }
        declared || /SPDX/ { next }
        comment { lines++; comment = !/\*\//; next }
        /^[ \t]*\/\// { lines++; next }
        /^[ \t]*\/\*/ { lines++; comment = !/\*\//; next }
        !/^[ \t]*(#|$)/ && !/^extern "C" \{$/ { declared = 1 }
        END { end(); print n + 0, "headers"; exit failed }'
}

judge "$top_srcdir/include" >"$directory/found" || failed=1
cat "$directory/found"
[ "$(sed -n 's/ headers$//p' "$directory/found")" -gt 30 ] || failed=1

# planted LINES: a comment of so many, between two directives.
planted()
{
    printf '%s\n' '/* SPDX-License-Identifier: Apache-2.0 */' '#ifndef PLANTED' '/* Words.'
    awk -v n="$1" 'BEGIN { for (i = 2; i < n; i++) print " * More words." }'
    printf '%s\n' ' * The last ones. */' '#include <stdint.h>' 'int declared;' '/* Not prose at' ' * the beginning. */'
}
mkdir "$directory/planted" || exit 99
planted 25 >"$directory/planted/fits.h"
planted 26 >"$directory/planted/long.h"
{
    awk 'BEGIN { for (i = 1; i <= 14; i++) print "// Words." }'
    planted 12
} >"$directory/planted/longer.hpp"
echo 'int silent;' >"$directory/planted/silent.h"
judge "$directory/planted" | sed "s,$directory/planted/,," >"$directory/found"
if ! printf '%s\n' '26 long.h' '26 longer.hpp' '0 silent.h' '4 headers' | diff - "$directory/found"; then
    echo "not what was planted"
    failed=1
fi
exit $failed
