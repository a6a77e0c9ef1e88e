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

# mpi_run N PROGRAM [ARGUMENT...]: run it on N ranks, for at most TEST_TIMEOUT_S seconds.
mpi_run()
{
    ranks=$1
    shift
    # shellcheck disable=SC2086
    timeout -k 10 "${TEST_TIMEOUT_S:-300}" "$mpiexec" $mpiexec_flags -n "$ranks" "$@" </dev/null
}
