#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What order the code for aarch64 asks for where processes and threads hand memory over: orders.sh BUILD
#
# An emulator on x86 keeps x86's order, and so cannot show that an acquire or a release is missing. Here each
# function has to have its instructions: ldar acquires, stlr releases, helpers with acq_rel are the two in one
# atomic operation; where one follows the other (>), they come in that order.
set -u
[ $# -eq 1 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
objdump=${OBJDUMP:-aarch64-linux-gnu-objdump}
code=$(mktemp) || exit 99
trap 'rm -f "$code"' EXIT
failed=0
"$objdump" -d --no-show-raw-insn "$1/.libs/libstepaf.so" |
    awk '/^[0-9a-f]+ <.*>:$/ { gsub(/[<>:]/, "", $2); f = $2 }
        $2 ~ /^(ldar|ldapr|stlr)$/ { print f, $2 }
        $2 == "bl" && $NF ~ /__aarch64_/ { gsub(/[<>]/, "", $NF); sub(/^__aarch64_/, "", $NF); print f, $NF }' >"$code"

# expect FUNCTION WHY INSTRUCTION...
expect()
{
    function=$1 why=$2
    shift 2
    has=$(sed -n "s/^$function //p" "$code" | tr '\n' ' ')
    at=" $has"
    for word; do
        case $at in
        *" $word "*) at=" ${at#*" $word "}" ;;
        *)
            echo "$function: $why: no $word; it has: ${has:-none}"
            failed=1
            return
            ;;
        esac
    done
    printf '%-28s %-40s %s\n' "$function" "$*" "$why"
}

expect stepaf_shm_progress "a message is read behind its number" ldar
expect stepaf_shm_drain "a message is read behind its number" ldar
expect stepaf_shm_drain "a slot is given back behind its reading" stlr
expect stepaf_shm_post "a slot that was given back is written after that" ldar
expect stepaf_shm_post "tensors and message are there before the number" stlr
expect stepaf_shm_write_fragments "a slot that was given back is written after that" ldar
expect stepaf_shm_write_fragments "a fragment is there before the number" stlr
expect stepaf_shm_write_pages "writing is said, then it is looked whether pages are closed" stlr ldar
expect stepaf_shm_write_pages "pages are written before that is said to be over" ldar stlr
expect stepaf_shm_close "pages are closed before it is looked who is writing" cas4_acq_rel
expect stepaf_shm_is_quiet "who is writing is looked at behind that" ldar
expect stepaf_lock_take "what the last holder wrote is there" ldar
expect stepaf_lock_give "what the holder wrote is there, then sleepers are looked for" swp4_acq_rel ldar
expect stepaf_handle_add "an object is whole before its handle is known" stlr
expect stepaf_boot_local_allgather "what ranks of a machine say at the start" ldadd4_acq_rel
expect stepaf_wait "an operation's result, behind what has come" ldar
[ $failed -eq 0 ] && echo "acquire and release are where memory is handed over"
exit $failed
