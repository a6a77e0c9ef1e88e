# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Sourced by run: make what a guest is booted from, once. Expects $here and $cache, where that is
# kept: kernel/ (fetch.sh, siw.sh), initramfs, one log for each, and siw.reason if it cannot be had.

# guest_logged NAME COMMAND...: with its output in NAME.log; say the log's end if it fails.
guest_logged()
{
    local log=$cache/$1.log status
    shift
    "$@" >"$log" 2>&1 </dev/null
    status=$?
    case $status in
    0) ;;
    77) tail -n 1 "$log" >&2 ;;
    *)
        echo "test/vm/$(basename "$1") has failed; the end of $log:" >&2
        tail -n 20 "$log" >&2
        ;;
    esac
    return $status
}

# guest_make: what is missing of all that. Runs that begin at the same time wait for the first one.
guest_make()
{
    (
        flock 9 || exit
        if [ ! -f "$cache/kernel/release" ]; then
            guest_logged fetch "$here/fetch.sh" "$cache/kernel" || exit
            rm -f "$cache/initramfs" "$cache/siw.done"
        fi
        if [ ! -f "$cache/siw.done" ] || [ "$here/siw.sh" -nt "$cache/siw.done" ]; then
            rm -f "$cache/siw.reason"
            "$here/siw.sh" "$cache/kernel" >"$cache/siw.log" 2>&1 </dev/null ||
                tail -n 1 "$cache/siw.log" >"$cache/siw.reason"
            : >"$cache/siw.done"
        fi
        if [ ! -f "$cache/initramfs" ] || [ "$here/init" -nt "$cache/initramfs" ]; then
            guest_logged initramfs "$here/initramfs.sh" "$cache/kernel" "$cache/initramfs"
        fi
    ) 9>"$cache/lock"
}
