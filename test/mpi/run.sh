#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run a case: run.sh FILE.case. Each line of it is one job, all have to pass:
#
#   RANKS PROGRAM [ARGUMENT...]         under mpirun; in sanitizer builds the program forks its ranks
#   fork RANKS PROGRAM [ARGUMENT...]    the program forks its ranks, always
#   mpmd ATTN FFN PROGRAM [ARGUMENT...] two applications of one mpirun; or forked, as above
#   dies RANKS PROGRAM [ARGUMENT...]    the first, and a rank is killed: the verdict is what the
#                                       survivors print; in sanitizer builds it is skipped
#   pmix WORD...                        one of these with a program of test/pmix, which has no MPI
#   gpu WORD...                         the same with a program of test/gpu; skipped without a GPU
#   NAME=VALUE                          a variable for the lines that follow
#   ofi                                 skipped where libfabric cannot be used
#   ucx                                 the same of UCX
#   softnic                             these are over a network card made of software, see test/softnic
#
# Programs are those of test/mpi. A word such as 100000/2000 is the first number, or, where
# TEST_LIGHT is set, the second. '#' begins a comment. With ThreadSanitizer jobs whose processes have
# one thread are left out. TEST_TIMEOUT_S limits each job. TEST_WRAP is
# a command that mpirun starts each rank by, such as valgrind. Where a launcher is known to report a
# rank that was killed, TEST_KILLED is the exit code; where it gives applications no numbers,
# TEST_ROLES is set, and ranks are told their roles. With TEST_LAUNCH=fork ranks are forked wherever they
# may be. TEST_NET_PORTS takes the place of a case's STEPAF_NET_PORTS, where two suites run side by side.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
. "$top_srcdir/test/mpi/env.sh"
. "$top_srcdir/test/mpi/has_threads.sh"

# one_thread RANKS PROGRAM ...: whether ThreadSanitizer would have nothing to see there.
one_thread()
{
    case ${SANITIZERS:-} in
    *thread*) [ "${STEPAF_PROGRESS:-}" != thread ] && [ "${STEPAF_TCP_THREADS:-0}" = 0 ] && ! program_has_threads "$2" ;;
    *) false ;;
    esac
}

# choose WORD: what a word of a case stands for.
choose()
{
    case $1 in
    [0-9]*/[0-9]*) [ -n "${TEST_LIGHT:-}" ] && echo "${1#*/}" || echo "${1%/*}" ;;
    *) echo "$1" ;;
    esac
}

# job RANKS PROGRAM [ARGUMENT...]; with $apps, "A F", as two applications
job()
{
    ranks=$1
    program=$top_builddir/test/$programs/$2
    shift 2
    for word; do
        shift
        set -- "$@" "$(choose "$word")"
    done
    if [ "$launch" = fork ]; then
        [ -z "$apps" ] || set -- --apps "${apps% *},${apps#* }" "$@"
        timeout -k 10 "${TEST_TIMEOUT_S:-300}" "$program" --procs "$ranks" "$@" </dev/null
    elif [ -n "$apps" ]; then
        # shellcheck disable=SC2086
        mpi_run "${apps% *}" ${TEST_ROLES:+env STEPAF_ROLE=attention} ${TEST_WRAP:-} \
            "$program" "$@" : -n "${apps#* }" ${TEST_ROLES:+env STEPAF_ROLE=ffn} ${TEST_WRAP:-} \
            "$program" "$@"
    else
        # shellcheck disable=SC2086
        mpi_run "$ranks" ${TEST_WRAP:-} "$program" "$@"
    fi
}

# survivors RANKS PROGRAM [ARGUMENT...]: the job, and what those say that are left. It is only for
# launchers that let them live.
survivors()
{
    case $launch-$mpiexec_flags-${TEST_KILLED:-} in
    fork-* | mpirun--)
        echo "SKIP: nobody to start ranks that may die"
        return 77
        ;;
    esac
    # When all have ended, Open MPI need not wait for them to heed its signal.
    said=$(export OMPI_MCA_orte_enable_recovery=1 PRTE_MCA_state_base_recoverable=1 \
        OMPI_MCA_odls_base_sigkill_timeout=0 TEST_TIMEOUT_S="${TEST_TIMEOUT_S:-$((90 * ${TEST_SLOW:-1}))}" && job "$@" 2>&1)
    code=$?
    echo "$said"
    case $said in
    *"SKIP $2"*) return 77 ;;
    # A rank that hangs says so after a minute, and ends. What is still there at the job's own limit is the launcher: Open
    # MPI 4.1.4's does not always end when a rank was killed (its PMIx server waits for itself).
    *"time limit, in: "*) echo "a rank has not come to its end"; return 1 ;;
    *"PASS $2"*) [ $code -eq "${TEST_KILLED:-$code}" ] && return 0 ;;
    esac
    echo "exit code $code, and not the verdict of those that are left"
    return 1
}

# slurm_has_lost FILE: whether srun has ended a job, one of whose ranks was to be killed, and no rank has said anything of
# it, good or bad: now and then Slurm 22.05 loses what is said last there.
slurm_has_lost()
{
    [ "${TEST_KILLED:-}" = 137 ] && grep -q '^srun: Force Terminated' "$1" &&
        ! grep -q -e '^PASS ' -e '^FAIL ' -e '^SKIP ' -e '^\[rank' -e 'time limit' "$1"
}

output=$(mktemp) || exit 99
trap 'rm -f "$output"' EXIT
skipped=0
jobs=0
while read -r line; do
    line=${line%%#*}
    # Words are split at blanks on purpose, and never expanded.
    set -f
    # shellcheck disable=SC2086
    set -- $line
    [ $# -gt 0 ] || continue
    launch=mpirun
    apps=
    run=job
    programs=mpi
    [ -z "${SANITIZERS:-}" ] && [ "${TEST_LAUNCH:-}" != fork ] || launch=fork
    case $1 in
    pmix | gpu)
        programs=$1
        shift
        ;;
    esac
    case $1 in
    *=*)
        [ "$1" = "${1#STEPAF_NET_PORTS=}" ] || set -- "STEPAF_NET_PORTS=${TEST_NET_PORTS:-${1#*=}}"
        [ "$1" != UCX_TLS=posix,cma,self ] || set -- "UCX_TLS=${TEST_UCX_SHM:-posix,cma,self}"
        # shellcheck disable=SC2163
        export "$1"
        continue
        ;;
    softnic)
        softnic=$(cd "$top_builddir/test/softnic" 2>/dev/null && pwd)/.libs/softnic.so
        if [ ! -f "$softnic" ]; then
            echo "SKIP: there is no test/softnic/softnic.la, which takes libibverbs"
            exit 77
        fi
        if [ -n "${SANITIZERS:-}" ]; then
            echo "SKIP: a sanitizer's library has to be the first that is loaded"
            exit 77
        fi
        export LD_PRELOAD="$softnic"
        export STEPAF_TRANSPORTS=verbs STEPAF_CUDA_PROXY=always STEPAF_PROGRESS=thread
        continue
        ;;
    ofi | ucx)
        unset OMPI_MCA_pml OMPI_MCA_btl # MPI may have loaded the library before
        usable=$(STEPAF_TRANSPORTS=$1 "$top_builddir/stepaf_info" -t 2>&1 | grep "^$1 ")
        case $usable in
        *'can be used'*) continue ;;
        esac
        echo "SKIP: no transport $1: ${usable:-this build was made without its library}"
        exit 77
        ;;
    fork)
        launch=fork
        shift
        ;;
    dies)
        run=survivors
        shift
        ;;
    mpmd)
        apps="$2 $3"
        ranks=$(($2 + $3))
        shift 3
        set -- "$ranks" "$@"
        ;;
    esac
    if [ "$launch" = mpirun ] && ! command -v "$mpiexec" >/dev/null; then
        echo "SKIP: $mpiexec is not installed"
        exit 77
    fi
    if [ "$launch" = mpirun ] && [ -n "$apps" ] && mpi_breaks_apps; then
        # Roles are to come from the numbers of applications.
        if [ "$programs" = pmix ]; then
            echo "SKIP: $mpiexec crashes where it is to start two applications"
            jobs=$((jobs + 1))
            skipped=$((skipped + 1))
            continue
        fi
        launch=fork
    fi
    if [ "$launch-$programs" = mpirun-pmix ] && [ -n "$mpiexec_lacks_pmix" ]; then
        echo "SKIP: $mpiexec has no PMIx server, without which no program starts that has no MPI"
        exit 77
    fi
    if [ "$programs" = gpu ]; then
        "$top_builddir/test/gpu/probe" || exit # before ranks are started in vain
    fi
    if one_thread "$@"; then
        echo "-- $line: left out, a process of it has one thread"
        continue
    fi
    jobs=$((jobs + 1))
    echo "== $line"
    for try in 1 2 3; do
        $run "$@" >"$output" 2>&1
        status=$?
        cat "$output"
        if [ $status -eq 0 ] || ! { mpi_has_crashed "$output" || slurm_has_lost "$output"; }; then
            break
        fi
        echo "MPI itself has crashed, or Slurm has lost the verdict, try $try"
    done
    case $status in
    0) ;;
    77) skipped=$((skipped + 1)) ;;
    124 | 137)
        echo "killed: not done after ${TEST_TIMEOUT_S:-300} s"
        exit 1
        ;;
    *)
        echo "exit code $status"
        exit "$status"
        ;;
    esac
done <"$1"

[ "$jobs" -gt 0 ] || { echo "$1 has no job"; exit 99; }
[ "$skipped" -lt "$jobs" ] || exit 77
