#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: run the list "cases", or those of its cases that are named:
# cases.sh [-l LIST] BUILD [NAME...]
#
# BUILD is a build directory with the test programs. Prints a line for each case: PASS NAME (N s),
# FAIL NAME (why, N s), SKIP NAME: REASON. A case's output is in $VM_JOB/cases/NAME.log. One that fails
# gets a second try, after a line AGAIN NAME: an emulated processor stands still for long now and then.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top_srcdir=$(cd "$here/../.." && pwd)
list=cases
if [ "$1" = -l ]; then
    list=$2
    shift 2
fi
top_builddir=$1
shift
export top_srcdir top_builddir
. "$top_srcdir/test/sanitize.sh"
failed=0

# An emulated processor is slow, and has but two of them: Open MPI is to know, and to use no network.
export TEST_LIGHT=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=vader,self OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none

# wanted NAME [NAMED...]: whether it is among those named, if any are.
wanted()
{
    local name=$1
    shift
    case " $* " in
    "  " | *" $name "*) ;;
    *) return 1 ;;
    esac
}

# case_try LOG SECONDS COMMAND...
case_try()
{
    local log=$1 limit=$2
    shift 2
    # Inner limits come first: they say more.
    TEST_TIMEOUT_S=$limit timeout -k 5 $((limit + 15)) env "$@" >"$log" 2>&1 </dev/null
    set -- $?
    # What it did to the network is not to be the next one's.
    [ "$1" -eq 0 ] || [ "$1" -eq 77 ] || ./rails.sh mend >>"$log" 2>&1
    return "$1"
}

# case_run NAME SECONDS COMMAND...
case_run()
{
    local name=$1 limit=$2 log=$VM_JOB/cases/$1.log started=$SECONDS status
    shift 2
    mkdir -p "$(dirname "$log")"
    case_try "$log" "$limit" "$@"
    status=$?
    if [ $status -ne 0 ] && [ $status -ne 77 ]; then
        echo "AGAIN $name (exit code $status, $((SECONDS - started)) s)"
        mv "$log" "$log.first"
        started=$SECONDS
        case_try "$log" "$limit" "$@"
        status=$?
    fi
    case $status in
    0) echo "PASS $name ($((SECONDS - started)) s)" ;;
    77) echo "SKIP $name: $(tail -n 1 "$log")" ;;
    *)
        failed=$((failed + 1))
        case $status in
        124 | 137) echo "FAIL $name (killed after $((SECONDS - started)) s)" ;;
        *) echo "FAIL $name (exit code $status, $((SECONDS - started)) s)" ;;
        esac
        ;;
    esac
}

cd "$here" || exit
while read -r name limit command; do
    case $name in
    '' | '#'*) continue ;;
    esac
    wanted "$name" "$@" || continue
    # A case is a line of words, without quoting.
    # shellcheck disable=SC2086
    case_run "$name" "$limit" $command
done <"$list"
[ $failed -eq 0 ]
