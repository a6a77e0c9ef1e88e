#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/clocks.patch fits the kernels as they are, and clocks.py finds in made-up stamps what was put there: a
# round trip of 4 us, of which the way there and back takes 0.7 each though the GPUs' timers are 1 s apart.
set -u
: "${top_srcdir:=.}" "${PYTHON:=python3}"
command -v patch >/dev/null || { echo "SKIP: patch is not installed"; exit 77; }
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src/device/cuda"
cp "$top_srcdir/src/device/cuda/cuda.c" "$top_srcdir/src/device/cuda/kernels.cu" "$work/src/device/cuda/"
chmod -R u+w "$work"
patch -s -p1 -F0 -d "$work" <"$top_srcdir/bench/clocks.patch" || { echo "bench/clocks.patch does not fit any more"; exit 1; }
[ "$(grep -c 'NOTE(' "$work/src/device/cuda/kernels.cu")" -ge 9 ] || { echo "the kernels have no stamps"; exit 1; }

cat >"$work/made.py" <<'END'
import array, sys
for path, role in zip(sys.argv[1:], (0, 1)):
    stamps = array.array("Q", bytes(64 * 8 * 1056 * 8))
    for n in range(64):
        begun = 5000000 + 4000 * n + 2000 * role
        far = 1000000000 * role
        marks = (begun - 300, begun, begun + 200, begun + 400, begun + 2700, begun + 2800)
        if role:  # it receives first
            marks = (begun - 300, begun, begun + 200, begun - 1900, begun - 1300, begun - 1200)
        for mark, stamp in enumerate(marks):
            stamps[(n * 8 + mark) * 1056] = stamp + far
    open(path, "wb").write(stamps.tobytes())
END
"$PYTHON" "$work/made.py" "$work/a" "$work/f" && "$PYTHON" "$top_srcdir/bench/clocks.py" "$work/a" "$work/f" >"$work/said" || exit 1
# said TITLE FIGURE: that line begins with that median.
said()
{
    grep -q "^$1 *$2 " "$work/said" || { echo "instead of $1 $2:"; cat "$work/said"; exit 1; }
}
grep -q '^61 operations; microseconds' "$work/said" || { cat "$work/said"; exit 1; }
said 'round trip' 4.00
said 'sending goes on, the other.s gate sees the head (mean of both ways)' 0.70
said 'FFN: all taken, its sending kernel goes on' 1.20
said 'attention: all taken, the next sending kernel goes on' 1.20
said 'attention: gate looks, until the head is seen' 2.30
head -c 800 "$work/a" >"$work/short"
if "$PYTHON" "$top_srcdir/bench/clocks.py" "$work/short" "$work/f" >"$work/said" 2>&1; then
    echo "a file that is cut off is taken"
    exit 1
fi
echo "the stamps fit the kernels, and clocks.py reads them"
