#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf-report: what the file has, what the comparison says, and what is refused.
set -u
: "${top_srcdir:=.}"
skip() { echo "skipped: $1"; exit 77; }
fail() { echo "FAIL: $1"; sed 's/^/    /' "$directory/err"; exit 1; }
command -v python3 >/dev/null || skip "there is no python3"
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
report=$top_srcdir/tools/stepaf-report
out=$directory/out.html

# run NAME P50 P50_OF_64K: a file as of stepaf_perf, with a name that has to be escaped
run()
{
    row() {
        echo "{\"test\": \"<af>\", \"transport\": \"shm\", \"attn\": 1, \"ffn\": 1, \"push_bytes\": $1,
            \"pull_bytes\": $1, \"iters\": 9, \"p50_us\": $2, \"p99_us\": 9.5, \"gb_per_s\": 1.25,
            \"floor\": {\"name\": \"memcpy\", \"p50_us\": 0.5, \"p99_us\": 0.75, \"gb_per_s\": 3}}"
    }
    echo "[$(row 64 "$2"), $(row 65536 "$3")]" >"$directory/$1.json"
}
refused() # SENTENCE FILE
{
    "$report" -o "$out" "$2" 2>"$directory/err" && fail "$2 was taken"
    grep -q "^stepaf-report: .*$1" "$directory/err" || fail "no sentence like: $1"
    [ "$(wc -l <"$directory/err")" -eq 1 ] || fail "more than a sentence"
    [ ! -e "$out" ] || fail "a refused file left a report"
}
echo '{' >"$directory/broken.json"
echo '{"a": 1}' >"$directory/foreign.json"
echo '[{"test": "af"}]' >"$directory/row.json"
echo '[]' >"$directory/empty.json"
run word '"<b>"' 1
run nan NaN 1
run infinite Infinity 1
refused 'no JSON' "$directory/broken.json"
refused 'no array with rows' "$directory/foreign.json"
refused 'no array with rows' "$directory/empty.json"
refused 'row 0 has no number push_bytes' "$directory/row.json"
refused 'row 0 has no number p50_us' "$directory/word.json"
refused 'row 0 has no number p50_us' "$directory/nan.json"
refused 'row 0 has no number p50_us' "$directory/infinite.json"
refused 'No such file' "$directory/none.json"

python3 -c 'import matplotlib' 2>/dev/null || skip "there is no matplotlib for Python; what is refused was tried"
# The first size is faster in all runs, the second's runs overlap.
for i in 1 2 3 4; do run "a$i" "5.$i" "20.$i"; run "b$i" "4.$i" "20.$((i + 1))"; done
cd "$directory" || exit 1
case $report in /*) ;; *) report=$OLDPWD/$report ;; esac
"$report" -o "$out" b?.json --against a?.json 2>err || fail "no report"
python3 - "$out" <<'END' 2>err || fail "the file is not as it should be"
import re, sys
from html.parser import HTMLParser
text = open(sys.argv[1], encoding="utf-8").read()
tags, stack, cells = [], [], []
class Check(HTMLParser):
    def handle_starttag(self, tag, attrs):
        tags.append(tag)
        stack.append(tag) if tag not in ("meta",) else None
        for name, value in attrs:
            assert name not in ("src", "srcset"), (tag, name)
            assert not name.endswith("href") or value.startswith("#"), value
    def handle_startendtag(self, tag, attrs):
        tags.append(tag)
    def handle_endtag(self, tag):
        assert stack.pop() == tag, tag
    def handle_data(self, data):
        if stack and stack[-1] == "td":
            cells.append(data)
Check().feed(text)
assert not stack, stack
assert tags.count("svg") == 4 * 2 * 2, tags.count("svg")
assert "script" not in tags and "@import" not in text and "af" not in tags
assert "<af>" in cells and "memcpy" in cells and "prefers-color-scheme:dark" in text
rows = re.findall(r"<tr><td>(\d+) / .*?<td>(p\d\d us)</td>.*?<td>([^<]*)</td></tr>", text)
assert rows == [("64", "p50 us", "faster"), ("64", "p99 us", "noise"),
                ("65536", "p50 us", "noise"), ("65536", "p99 us", "noise")], rows
END
"$report" -o "$out" b1.json --against a?.json 2>err || fail "no report of one run"
grep -q 'not known: fewer than 4 runs' "$out" || fail "one run was judged"
"$report" -o "$out" a?.json --against b?.json 2>err || fail "no report the other way"
grep -q '<td>slower</td>' "$out" || fail "what became slower is not named"
! grep -q '<td>faster</td>' "$out" || fail "runs that overlap were called faster"
