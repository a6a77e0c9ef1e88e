#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The ABI is the last release's, and more: abidiff compares test/lib/libstepaf.abi with what the headers and
# the version map make now. Breaks that are planted are found, and what docs/abi.md allows is let pass.
# "abi.sh update", at a release, writes the file anew.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${CC:=cc}"
for tool in abidw abidiff; do
    command -v $tool >/dev/null && continue
    echo "skipped: $tool is not installed (package abigail-tools)"
    exit 77
done
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
released=$top_srcdir/test/lib/libstepaf.abi
map=$top_srcdir/src/libstepaf.map
failed=0

# Headers alone decide: test/lib/symbols.sh compares them with what the library exports. So a library of the
# same functions with empty bodies has its ABI, and takes no time to build.
make_library()
{
    awk 'FNR == 1 { print "" }
        /^STEPAF_API/ { inside = 1 }
        inside && sub(/;$/, " { __builtin_trap(); }") { inside = 0 }
        { print }' "$1/stepaf/status.h" "$1/stepaf/types.h" $(find "$1/stepaf" -name '*.h' ! -name status.h ! -name types.h ! -name stepaf.h | sort) \
        >"$directory/abi.c" &&
        $CC -g -O0 -w -fPIC -shared -I"$1" -Wl,--version-script="$2" -Wl,-soname,libstepaf.so.1 \
            "$directory/abi.c" -o "$directory/libstepaf.so"
}

# headers NAME: a copy of the public headers, MPI's apart.
headers()
{
    mkdir -p "$directory/$1/stepaf"
    cp "$top_srcdir"/include/stepaf/*.h "$top_builddir/include/stepaf/version.h" "$directory/$1/stepaf"
    rm "$directory/$1/stepaf/mpi.h" "$directory/$1/stepaf/pmix.h"
    # Each once: one that is included by another would lose its functions to the guard.
    sed -i '/^#include <stepaf/d' "$directory/$1"/stepaf/*.h
}

# growing HEADER...: the structures that may grow at their end: those that begin with size or field_mask,
# the library's own error, and records whose size the caller says.
growing()
{
    echo stepaf_error stepaf_trace_record
    awk '/^typedef struct stepaf_[a-z_]* {$/ { name = $3; getline
        if ($0 ~ /^    (size_t size|uint64_t field_mask);/) print name }' "$@"
}

# judge: read abidiff's report; 1 if it has what docs/abi.md does not allow, which is printed.
judge()
{
    awk -v growing="$(growing "$directory"/now/stepaf/*.h | tr '\n' ' ')" '
        BEGIN { n = split(growing, names); for (i = 1; i <= n; i++) may["struct " names[i]] = 1 }
        function bad() { print; failed = 1 }
        /^$/ { next }
        /summary:/ { if (/functions|variables/ && !/ 0 Removed, 0 Changed/) bad(); next }
        /^.(struct|enum) [a-z_]+. changed:$/ {
            name = $1 " " $2
            gsub(/\047/, "", name)
            size = in_what = ""
            if (name ~ /^struct/ && !(name in may))
                bad()
            next
        }
        /^  type size hasn.t changed$/ { size = "same"; next }
        /^  type size changed from [0-9]+ to/ { size = $5 + 0; next }
        # What has got a place in padding is not there for who knows only the old size.
        /^  [0-9]+ data member insertions?:$/ { in_what = "field"; if (size == "same") bad(); next }
        /^  [0-9]+ enumerator insertions?:$/ { in_what = "new"; next }
        /^  [0-9]+ enumerator changes?:$/ { in_what = "number"; next }
        in_what == "new" { next }
        in_what == "number" && /_LAST\047 from/ { next }
        in_what == "field" && match($0, /at offset [0-9]+/) {
            if (substr($0, RSTART + 10, RLENGTH - 10) + 0 < size) bad()
            next
        }
        { bad() }
        END { exit failed }' "$directory/said"
}

# differs DIRECTORY MAP: 0 if the ABI that these make is not the released one; 99 if there is none.
differs()
{
    make_library "$1" "$2" || return 99
    abidiff --leaf-changes-only --no-added-syms "$released" "$directory/libstepaf.so" >"$directory/said" 2>&1
    status=$?
    # Bits: 1 and 2 are errors, 4 is a change, 8 one that is incompatible by any measure.
    [ $((status & 3)) -eq 0 ] || return 99
    ! judge >"$directory/why"
}

# planted WANTED WORDS FILE SED: with such a change of a header or the map, differs has to be so (0, 1).
planted()
{
    rm -rf "$directory/changed"
    headers changed
    cp "$map" "$directory/changed/map"
    sed -i "$4" "$directory/changed/$3"
    ! cmp -s "$directory/changed/$3" "$directory/now/$3" || {
        echo "$2: nothing was planted"
        failed=1
        return
    }
    differs "$directory/changed" "$directory/changed/map"
    got=$?
    if [ $got -eq "$1" ]; then
        echo "$2: $([ "$got" -eq 0 ] && echo found || echo allowed)"
    else
        echo "$2: FAILED, $got instead of $1"
        cat "$directory/said"
        failed=1
    fi
}

headers now
cp "$map" "$directory/now/map"
if [ "${1:-}" = update ]; then
    make_library "$directory/now" "$map" &&
        abidw --no-comp-dir-path --no-corpus-path --no-show-locs --out-file "$released" "$directory/libstepaf.so"
    exit
fi
differs "$directory/now" "$map"
status=$?
functions=$(${NM:-nm} -D --defined-only "$directory/libstepaf.so" | grep -c ' T stepaf_')
if [ "$functions" -ne "$(grep -c '^ *stepaf_[a-z0-9_]*;' "$map")" ]; then
    echo "FAILED: $functions functions were looked at, and the map has others"
    failed=1
fi
case $status in
0)
    echo "FAILED: the ABI is not the released one; see docs/abi.md:"
    cat "$directory/why"
    failed=1
    ;;
1) echo "the ABI is the released one: $functions functions" ;;
*)
    cat "$directory/said"
    exit 1
    ;;
esac

planted 0 "a parameter of another size" stepaf/request.h 's/int64_t timeout_us/int timeout_us/'
planted 0 "a field in the middle" stepaf/types.h 's/^    int ndim;/    int extra;\n&/'
planted 0 "a field of another type" stepaf/types.h 's/^    size_t max_bytes;/    uint32_t max_bytes;/'
planted 0 "a field that is gone" stepaf/memory.h '/size_t key_peers;/d'
planted 0 "a field in what never changes" stepaf/types.h 's/^} stepaf_tensor_t;/    int extra;\n&/'
planted 0 "another number of a status" stepaf/status.h 's/STEPAF_ERR_TIMEOUT, -13/STEPAF_ERR_TIMEOUT, -30/'
planted 0 "a function that is gone" map '/stepaf_cancel;/d'
planted 0 "a function in another node" map 's/^STEPAF_0.2/STEPAF_0.3/'
planted 0 "a field in the padding at the end" stepaf/batch.h 's/^} stepaf_batch_info_t;/    int extra;\n&/'
planted 0 "a type in front of others" stepaf/types.h 's/^    _(STEPAF_U8/    _(STEPAF_NEW, "new", 1) \\\n&/'
planted 1 "a field at the end" stepaf/batch.h 's/^} stepaf_batch_info_t;/    uint64_t extra;\n&/'
planted 1 "a type behind others" stepaf/types.h 's/^    _(STEPAF_F8_E5M2.*/& \\\n    _(STEPAF_NEW, "new", 1)/'
planted 1 "a field at the end of parameters" stepaf/key.h 's/^} stepaf_key_params_t;/    void *extra;\n&/'
planted 1 "a new status" stepaf/status.h 's/^    _(STEPAF_ERR_PROTOCOL/    _(STEPAF_ERR_NEW, -23, "new") \\\n&/'
planted 1 "a new function" stepaf/request.h 's/^STEPAF_API int stepaf_request_slot/STEPAF_API int stepaf_request_new(void);\n\n&/'
exit $failed
