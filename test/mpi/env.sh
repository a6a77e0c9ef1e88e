# SPDX-License-Identifier: Apache-2.0
# Sourced by everything that starts MPI programs on one machine, as root or not, on any number of
# cores. Sets what mpirun reads, and mpiexec_flags; defines mpi_run.

# Open MPI asks twice whether root means it.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Nothing leaves the machine. PRRTE 3 does not take the loopback interface where it has another (Open MPI
# 5.0.7 then ends with "No network interfaces were found"); its one daemon here talks to nobody.
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo PMIX_MCA_ptl_tcp_if_include=lo

# No words about networks that are not there, nor about programs that have failed by themselves.
export OMPI_MCA_btl_base_warn_component_unused=0
export OMPI_MCA_orte_base_help_aggregate=0 OMPI_MCA_orte_execute_quiet=1
export PMIX_MCA_pcompress_base_silence_warning=1

# Empty where configure has found no launcher of its MPI: then no other MPI's stands in for it.
mpiexec=${MPIEXEC-mpirun}
mpiexec=${mpiexec:-mpirun of the MPI that configure has found}
mpiexec_flags=
mpiexec_lacks_pmix=
case $("$mpiexec" --version 2>/dev/null) in
*"Open MPI"* | *OpenRTE* | *PRRTE*) mpiexec_flags=--oversubscribe ;;
*HYDRA* | *"Intel(R) MPI"*) mpiexec_lacks_pmix=1 ;;
esac

# mpi_breaks_apps: whether this mpirun crashes where it is to start two applications, whatever they are: Open MPI
# 5 as Debian and Ubuntu package it (open-mpi/ompi#13303).
mpi_breaks_apps()
{
    if [ -z "${mpi_apps_code:-}" ]; then
        case $("$mpiexec" --version 2>/dev/null) in
        *"(Open MPI) "[1-4].*) mpi_apps_code=0 ;;
        *"Open MPI"*)
            timeout -k 10 60 "$mpiexec" $mpiexec_flags -n 1 true : -n 1 true >/dev/null 2>&1 </dev/null
            mpi_apps_code=$?
            ;;
        *) mpi_apps_code=0 ;;
        esac
    fi
    [ "$mpi_apps_code" -eq 139 ]
}

# mpi_has_crashed FILE: whether MPI itself has crashed in a rank, by what the rank says there (harness_crash.c). Now and then,
# beside much else, Open MPI 4.1.4 calls a function that is not there, in MPI_Init, for what has come by its TCP.
mpi_has_crashed()
{
    grep -q '^crash: signal 11 at (nil)' "$1" && grep -q '^  stack .*/mca_btl_tcp\.so' "$1" && grep -q '^  stack .* ompi_mpi_init$' "$1"
}

# mpi_start COMMAND... -n N PROGRAM [ARGUMENT...] [: -n N PROGRAM [ARGUMENT...]]: what begins with mpirun and its options;
# of two programs one application where mpirun cannot have two. They have no application numbers then.
mpi_start()
{
    mpi_before=0 mpi_words=0 mpi_at=start
    for mpi_word; do
        case $mpi_at-$mpi_word in
        start--n) mpi_at=ranks ;;
        start-*) mpi_before=$((mpi_before + 1)) ;;
        ranks-*) mpi_ranks=$mpi_word mpi_at=first ;;
        first-:) mpi_at=second-n ;;
        first-*) mpi_words=$((mpi_words + 1)) ;;
        second-n-*) mpi_at=second-ranks ;;
        second-ranks-*) mpi_more=$mpi_word mpi_at=second ;;
        esac
    done
    if [ $mpi_at = second ] && mpi_breaks_apps; then
        mpi_n=0
        for mpi_word; do
            shift
            mpi_n=$((mpi_n + 1))
            mpi_in=$((mpi_n - mpi_before - 2))
            case $mpi_in in
            -1) set -- "$@" -n ;;
            0) set -- "$@" $((mpi_ranks + mpi_more)) sh "$top_srcdir/test/mpi/apps.sh" "$mpi_ranks" $mpi_words ;;
            $((mpi_words + 1)) | $((mpi_words + 2)) | $((mpi_words + 3))) ;; # ": -n N"
            *) set -- "$@" "$mpi_word" ;;
            esac
        done
    fi
    "$@" </dev/null
}

# mpi_run N PROGRAM [ARGUMENT...]: run it on N ranks, for at most TEST_TIMEOUT_S seconds.
mpi_run()
{
    ranks=$1
    shift
    # shellcheck disable=SC2086
    mpi_start timeout -k 10 "${TEST_TIMEOUT_S:-300}" "$mpiexec" $mpiexec_flags -n "$ranks" "$@"
}
