#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run one test under a time limit: with_timeout.sh PROGRAM [ARGUMENT...]
# The limit is TEST_TIMEOUT_S seconds, far above what a test takes: it is there for those that hang.
limit_s=${TEST_TIMEOUT_S:-300}
timeout -k 10 "$limit_s" "$@" </dev/null
status=$?
case $status in
124 | 137) echo "$1: killed: not done after $limit_s s" ;;
esac
exit $status
