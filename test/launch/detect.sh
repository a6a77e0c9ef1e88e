#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which launcher stepaf-run takes, out of programs that only say who they are; that it becomes this
# launcher, with the words that --dry-run shows; and what it says when there is none.
set -u
. "${top_srcdir:-.}/test/launch/common.sh"

openmpi='echo "mpirun (Open MPI) 4.1.4"'
hydra='echo "HYDRA build details:"; echo "    Version: 4.0.2"'
intel='echo "Intel(R) MPI Library for Linux* OS, Version 2021.10"'
plugins='printf "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"'

# only [NAME SCRIPT]...: these launchers are there and no others.
only()
{
    rm -f "$bin"/*
    while [ $# -gt 0 ]; do
        fake "$1" "$2"
        shift 2
    done
}

# dry [NAME=VALUE...] [OPTION...]: as a user other than root would see it.
dry()
{
    expect 0 env PATH="$bin" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 $setting \
        "$run" --dry-run --bind none -a 1 -f 1 "$@" /bin/true
}
refused()
{
    pattern=$1
    shift
    expect 2 env PATH="$bin" $setting "$run" --dry-run -a 1 -f 1 "$@" /bin/true
    has err "^stepaf-run: .*$pattern"
    [ "$(wc -l <"$directory/err")" -eq 1 ] || fail "more than one line"
    is out ''
}
setting=

only mpirun "$openmpi"
dry
is out 'STEPAF_SPLIT=attn=1,ffn=1 mpirun --bind-to none -x STEPAF_SPLIT -n 2 /bin/true'
dry --launcher openmpi
has out ' mpirun --bind-to none '
dry --launcher "$bin/mpirun"
has out " $bin/mpirun --bind-to none "
refused "no mpirun of MPICH or Intel MPI in PATH: install mpich; mpirun is another kind" \
    --launcher hydra
refused "there is no srun: install slurm-client" --slurm
refused "there is no srun: install slurm-client" --launcher slurm
refused "cannot run $bin/none: No such file" --launcher "$bin/none"
refused "it takes auto, mpirun, openmpi, hydra, slurm, ssh, or a path" --launcher pbs

only mpirun "$hydra"
dry
is out 'mpirun -bind-to none -genv STEPAF_SPLIT attn=1,ffn=1 -n 2 /bin/true'
refused "no mpirun of Open MPI in PATH: install openmpi-bin; mpirun is another kind" \
    --launcher openmpi
only mpiexec "$hydra"
dry --launcher mpirun
has out '^mpiexec -bind-to none '
only mpiexec.hydra "$intel"
dry
has out '^mpiexec.hydra -genv I_MPI_PIN off '
# What mpirun is does not tell what mpiexec is. First comes the name that configure has found beside the wrapper.
named=$(sed -n 's/^#define STEPAF_MPIEXEC_NAME "\(.*\)"$/\1/p' "$top_builddir/config.h")
[ -n "$named" ] || fail "config.h names no launcher"
only mpirun "$openmpi" mpiexec "$hydra"
case $named in
mpiexec)
    dry
    has out '^mpiexec '
    ;;
*)
    dry
    has out ' mpirun '
    ;;
esac
dry --launcher hydra
has out '^mpiexec '
only mpirun "$openmpi" "$named" "$hydra"
dry
has out "^$named -bind-to none "
only mpirun "$openmpi"
dry
has out ' mpirun '

only
refused "no launcher is here, neither mpirun nor a Slurm job: install openmpi-bin or mpich"
only mpirun 'echo "something else 1.0"'
refused "install openmpi-bin or mpich, or use --slurm; mpirun is not a supported launcher.*: something else"
only mpirun 'exit 3'
refused "with --version it prints: nothing"

# In an allocation srun comes first, if it can start MPI programs.
setting=SLURM_JOB_ID=7
only mpirun "$openmpi" srun "$plugins"
dry
has out '^STEPAF_SPLIT=attn=1,ffn=1 srun --mpi=pmix .* --ntasks=2 /bin/true$'
dry --launcher mpirun
has out ' mpirun '
only mpirun "$openmpi" srun 'printf "MPI plugin types are...\n\tnone\n" >&2'
dry --verbose
has out ' mpirun '
has err 'srun has no plugin that MPI can start with, .*: MPI plugin types are... +none'
refused "srun has no plugin that MPI can start with" --slurm
only srun 'printf "MPI plugin types are...\n\tnone\n"'
refused "srun has no plugin that MPI can start with"
only srun 'echo "srun: error: no configuration" >&2; exit 1'
refused "srun --mpi=list has failed .*: srun: error: no configuration"
# Where srun is asked for, what is only shown may be for a machine whose srun works.
dry --slurm
has out ' srun --mpi=pmix .* --ntasks=2 /bin/true$'
has err '^stepaf-run: srun --mpi=list has failed .*: srun: error: no configuration; --mpi=pmix is a guess'
dry --slurm --pass=--mpi=pmix_v5
has out ' --mpi=pmix_v5 '
lacks out '--mpi=pmix '
is err ''
expect 2 env PATH="$bin" "$run" --slurm -a 1 -f 1 /bin/true
has err '^stepaf-run: srun --mpi=list has failed'
only mpirun "$openmpi"
dry
has out ' mpirun '
setting=
only mpirun "$openmpi" srun "$plugins"
dry
has out ' mpirun '
dry --slurm
has out ' srun --mpi=pmix '
# A plugin that the user names is not judged.
only srun 'exit 1'
dry --slurm='--mpi=cray_shasta  -p gpu'
has out 'srun --export=ALL .* --mpi=cray_shasta -p gpu --ntasks=2'

# It becomes the launcher: its words, its environment, its exit code.
only mpirun "case \$1 in --version) $openmpi; exit ;; esac
for word; do printf '<%s>' \"\$word\"; done
echo \" \$STEPAF_SPLIT \$A\"
exit 7"
expect 7 env PATH="$bin" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$run" \
    --bind none --env 'A=1;2' -a 1 -f 2 --oversubscribe /bin/true 'a b' '' "it's" '$(x)' --help -- \*
is out "<--oversubscribe><--bind-to><none><-x><A><-x><STEPAF_SPLIT><-n><3></bin/true><a b><><it's><\$(x)><--help><--><*> attn=1,ffn=2 1;2"
is err ''
# What --dry-run prints does the same in a shell.
expect 0 env PATH="$bin" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$run" \
    --dry-run --bind none --env 'A=1;2' -a 1 -f 2 --oversubscribe /bin/true 'a b' '' "it's" '$(x)' --help -- \*
cp "$directory/out" "$directory/line"
expect 7 env PATH="$bin" /bin/sh "$directory/line"
is out "<--oversubscribe><--bind-to><none><-x><A><-x><STEPAF_SPLIT><-n><3></bin/true><a b><><it's><\$(x)><--help><--><*> attn=1,ffn=2 1;2"
# The words that are shown before the start are the same.
expect 7 env PATH="$bin" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$run" \
    --verbose --bind none --env 'A=1;2' -a 1 -f 2 --oversubscribe /bin/true 'a b' '' "it's" '$(x)' --help -- \*
tail -n 1 "$directory/err" >"$directory/last"
cmp "$directory/last" "$directory/line" || fail "--verbose and --dry-run differ"
exit $failed
