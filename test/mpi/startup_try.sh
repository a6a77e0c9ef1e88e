# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts that try starts which have to fail: try WORDS REASONS COMMAND...
# REASONS are what the program startup has to say, one a line and nothing else; the exit code has to
# be another than 0. COMMAND limits its own time by "timeout". $out is a file to use.
try_failed=0
try_count=0

try()
{
    words=$1
    reasons=$2
    shift 2
    try_count=$((try_count + 1))
    "$@" >"$out" 2>&1 </dev/null
    code=$?
    said=$(sed -n 's/^startup: //p' "$out" | sort -u)
    if [ $code -eq 0 ] || [ $code -ge 124 ] || [ "$said" != "$reasons" ]; then
        echo "FAILED: $words: exit code $code, and it said"
        cat "$out"
        echo "instead of"
        echo "$reasons"
        try_failed=1
    else
        echo "$words: $said"
    fi
}
