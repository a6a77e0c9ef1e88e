#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The decoder over three hosts says, token by token, what the reference says.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
hosts_enter "$@"
hosts_need_mpirun
decode=$top_builddir/stepaf_decode
models=$top_srcdir/bench/decode/model
[ -x "$decode" ] || hosts_skip "stepaf_decode is not built"
unset STEPAF_SPLIT STEPAF_ROLE
hosts_up 3 || exit 99

# verified MODEL ARGUMENT...: six ranks, two on each host.
verified()
{
    model=$models/$1
    shift
    echo "== $model $*, transports ${STEPAF_TRANSPORTS:-all}"
    hosts_mpirun h1:2,h2:2,h3:2 -n 6 --map-by node "$decode" --model "$model" --quiet \
        --verify "$model/reference.json" "$@" >/run/said 2>&1
    status=$?
    cat /run/said
    [ $status -eq 0 ] && grep -q '640 of 640 tokens equal, in 10 of 10 sequences' /run/said || exit 1
}

verified qwen3-moe-tiny --split attn=3,ffn=3 --microbatches 2
verified qwen3-dense-tiny --split attn=2,ffn=4 --microbatches 2 --scatter
export STEPAF_TRANSPORTS=tcp
verified qwen3-moe-tiny --split attn=4,ffn=2 --microbatches 3
hosts_check
