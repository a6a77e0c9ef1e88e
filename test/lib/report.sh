#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf-report: what is refused, whatever a file has in it; what a comparison says; the page, and how a browser
# lays it out and colours it, narrow and wide, light and dark.
set -u
: "${top_srcdir:=.}"
skip() { echo "skipped: $1"; exit 77; }
fail() { echo "FAIL: $1"; exit 1; }
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
here=$top_srcdir/test/lib

# The Python that has matplotlib, else any.
finds() { "$1" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("matplotlib"))' 2>/dev/null; }
python=$(command -v python3) || skip "there is no python3"
finds "$python" || ! finds /usr/bin/python3 || python=/usr/bin/python3
HOME=$directory MPLCONFIGDIR=$directory "$python" "$here/report_page.py" "$top_srcdir/tools/stepaf-report" "$directory" ||
    fail "stepaf-report is not as it should be"
[ -e "$directory/page.html" ] || skip "there is no matplotlib for Python; what is refused, and what is noise, was tried"

for browser in chromium chromium-browser google-chrome; do
    ! command -v $browser >/dev/null || break
    browser=
done
[ -n "$browser" ] || skip "there is no Chromium; the page was made and read, but not laid out"
# The page lets no script run: a copy does.
sed "s,<meta http-equiv=[^>]*>,," "$directory/page.html" >"$directory/copy.html"
{ echo '<script>'; cat "$here/report_page.js"; echo '</script>'; } >>"$directory/copy.html"
for scheme in 1 0; do
    HOME=$directory timeout 120 $browser --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
        --disable-background-networking --user-data-dir="$directory/profile" \
        --blink-settings=preferredColorScheme=$scheme --window-size=1400,1000 --dump-dom \
        "file://$directory/copy.html" >"$directory/dom" 2>"$directory/err"
    said=$(sed -n 's/.*<title>\([^<]*\)<.*/\1/p' "$directory/dom")
    case $said in
    "looked at: "*) ;;
    *) [ "$said" ] || tail -n 5 "$directory/err"; fail "colour scheme $scheme: ${said:-the browser has shown nothing}" ;;
    esac
    case $scheme/$said in
    0/*dark* | 1/*light*) echo "$said" ;;
    *) fail "colour scheme $scheme: $said" ;;
    esac
done
