#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What make check starts each test by: timed.sh DRIVER --trs-file FILE ...
# DRIVER is automake's. Behind the test's result FILE says how long it took, in seconds:
# ":test-seconds: 1.25".
before=$(date +%s.%N)
sh "$@"
status=$?
after=$(date +%s.%N)
while [ $# -gt 1 ]; do
    if [ "$1" = --trs-file ] && [ -f "$2" ]; then
        echo "$before $after" | awk '{ printf ":test-seconds: %.2f\n", $2 - $1 }' >>"$2"
        break
    fi
    shift
done
exit $status
