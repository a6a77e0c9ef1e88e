#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What make check starts each test by: timed.sh DRIVER --trs-file FILE ...
# DRIVER is automake's. Behind the test's result FILE says how long it took, in seconds, and of how much
# processor time: ":test-seconds: 1.25 0.70". Time of processes that nobody has waited for is not known.
before=$(date +%s.%N)
sh "$@"
status=$?
after=$(date +%s.%N)
while [ $# -gt 1 ]; do
    if [ "$1" = --trs-file ] && [ -f "$2" ]; then
        # Of this shell, then of its children, each "0m0.010s 0m0.000s".
        times >"$2.times"
        awk -v took="$before $after" '
            FNR == 2 {
                split(took, at, " ")
                gsub(/[ms]/, " ")
                printf ":test-seconds: %.2f %.2f\n", at[2] - at[1], 60 * ($1 + $3) + $2 + $4
            }' "$2.times" >>"$2"
        rm -f "$2.times"
        break
    fi
    shift
done
exit $status
