#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One of two programs, where one application of mpirun stands for two: apps.sh RANKS WORDS WORD... has the first
# RANKS ranks run the first WORDS words, and the others the rest.
ranks=$1
words=$2
shift 2
if [ "$OMPI_COMM_WORLD_RANK" -ge "$ranks" ]; then
    shift "$words"
    exec "$@"
fi
for word; do
    shift
    [ "$words" -le 0 ] || set -- "$@" "$word"
    words=$((words - 1))
done
exec "$@"
