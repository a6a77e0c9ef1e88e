#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What stepaf-run does not take: each with its sentence on one line, exit code 2, and nothing run.
set -u
. "${top_srcdir:-.}/test/launch/common.sh"

fake mpirun "case \$1 in --version) echo 'mpirun (Open MPI) 4.1.4' ;; *) echo started ;; esac"

# refuse SENTENCE ARGUMENT...
refuse()
{
    sentence=$1
    shift
    expect 2 env PATH="$bin" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 $setting \
        "$run" "$@"
    grep -Fq -- "stepaf-run: $sentence" "$directory/err" || fail "$*: it does not say: $sentence"
    [ "$(grep -cv '^Try ' "$directory/err")" -eq 1 ] || fail "$*: more than one line"
    is out ''
}
setting=

true=/bin/true
refuse "no program is given" -a 1 -f 1
refuse "no program is given"
refuse "no program is given" -a 1 -f 1 --
refuse "-a N is missing: how many attention ranks?" -f 1 $true
refuse "-f N is missing: how many FFN ranks?" -a 1 $true
refuse "-a 0: it takes a number from 1 to 1048576" -a 0 -f 1 $true
refuse "-a -1: it takes a number" -a -1 -f 1 $true
refuse "-f 2x: it takes a number" -a 1 -f 2x $true
refuse "-f : it takes a number" -a 1 -f '' $true
refuse "-f 9999999: it takes a number" -a 1 -f 9999999 $true
refuse "unrecognized option '--fast'" -a 1 -f 1 --fast $true
refuse "option requires an argument -- 'f'" -a 1 -f
refuse "--bind socket: it takes core, numa, gpu, none or auto" -a 1 -f 1 --bind socket $true
refuse "--timeout 0: it takes a number from 1 to 2592000" -a 1 -f 1 --timeout 0 $true
refuse "--nodes x: it takes a number" -a 1 -f 1 -N x $true
refuse "--nodes is for Slurm, but the launcher here is mpirun" -a 1 -f 1 -N 2 $true
refuse "--nodes and a list of hosts exclude each other" -a 1 -f 1 -N 2 --hosts h1 $true
refuse "--hosts and --hostfile exclude each other" -a 1 -f 1 --hosts h1 --hostfile f $true
refuse "--hosts: \"\" is not the name of a host" -a 1 -f 1 --hosts '' $true
refuse "--hosts: \"-x\" is not the name of a host" -a 1 -f 1 --hosts h1,-x $true
refuse "--hosts: \"h1:0\" is not HOST:N" -a 1 -f 1 --hosts h1:0 $true
refuse "--hosts: h1 is listed twice" -a 1 -f 1 --hosts h1,h1 $true
refuse "the hosts take 3 ranks, but there are 4" -a 2 -f 2 --hosts h1:2,h2:1 $true
refuse "host h2 takes 1 ranks, but each node gets 2" -a 1 -f 1 --per-node --hosts h1:2,h2:1 $true
# A name that nobody knows, unless ssh does, or something else than ssh is to reach it. The domain is
# reserved for names that do not exist.
nowhere=nowhere.invalid
export RES_OPTIONS="timeout:1 attempts:1"
some="-a 1 -f 1 --hosts localhost:1,$nowhere:1"
refuse "--hosts: host $nowhere has no address: " $some $true
printf 'localhost slots=1\n%s slots=1 # far away\n' $nowhere >"$directory/hosts"
refuse "$directory/hosts: host $nowhere has no address: " \
    -a 1 -f 1 --hostfile "$directory/hosts" $true

# started ARGUMENT...: the launcher is left to find out.
started()
{
    expect 0 env PATH="$bin" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 $setting \
        "$run" $some "$@"
    is out started
}
setting=OMPI_MCA_plm_rsh_agent=/bin/true
started $true
setting=
started --pass=--mca --pass=plm_rsh_agent --pass=x $true
fake ssh 'printf "host %s\nuser me\nhostname 127.0.0.1\nport 22\n" "$2"'
started $true
fake ssh 'printf "hostname %s\nproxyjump gate\n" "$2"'
started $true
fake ssh 'printf "hostname %s\nproxycommand none\n" "$2"'
refuse "--hosts: host $nowhere has no address: " $some $true
fake ssh 'printf "hostname also.%s\n" "$2"'
refuse "--hosts: host $nowhere has no address: " $some $true
rm "$bin/ssh"
expect 0 env PATH="$bin" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    "$run" --dry-run $some $true
has out " --host localhost:1,$nowhere:1 "

refuse "--hostfile $directory/none: No such file" -a 1 -f 1 --hostfile "$directory/none" $true
refuse "--hostfile /: Is a directory" -a 1 -f 1 --hostfile / $true
refuse "--launcher ssh requires hosts: give --hosts or --hostfile" -a 1 -f 1 --launcher ssh $true
refuse "--slurm and --launcher ssh exclude each other" -a 1 -f 1 --slurm --launcher ssh $true
refuse "--slurm and --launcher hydra exclude each other" -a 1 -f 1 --slurm --launcher hydra $true
refuse "--env 1A=2: it takes NAME or NAME=VALUE" -a 1 -f 1 --env 1A=2 $true
refuse "--env =2: it takes NAME or NAME=VALUE" -a 1 -f 1 --env =2 $true
refuse "--env STEPAF_NONE: there is no such variable" -a 1 -f 1 --env STEPAF_NONE $true
refuse "--env STEPAF_ROLE=ffn: -a and -f set the roles" -a 1 -f 1 --env STEPAF_ROLE=ffn $true
refuse "--env STEPAF_SPLIT=x: -a and -f set the roles" -a 1 -f 1 --env STEPAF_SPLIT=x $true
refuse "cannot run ./none: No such file" -a 1 -f 1 ./none
refuse "cannot run stepaf-none: not found in PATH" -a 1 -f 1 stepaf-none
refuse "cannot run ./none: No such file" -a 1 $true : -f 1 ./none

refuse "a program is missing before or after a ':'" -a 1 $true : -f 1
refuse "a program is missing before or after a ':'" -a 1 $true :
refuse "a program is missing before or after a ':'" : -f 1 $true
refuse "with several programs, each must have either -a or -f, but program 1 has both" \
    -a 1 -f 1 $true : $true
refuse "with several programs, each must have either -a or -f, but program 2 has neither" -a 1 $true : $true
refuse "no program has FFN (-f) ranks" -a 1 $true : -a 1 $true
refuse "no program has attention (-a) ranks" -f 1 $true : -f 1 $true
refuse "only -a and -f can stand behind a ':'" -a 1 $true : -f 1 --bind core $true
refuse "unrecognized option '--fast'" -a 1 $true : -f 1 --fast $true
refuse "--interleave and --per-node require one program" --interleave -a 1 $true : -f 1 $true
refuse "--interleave and --per-node require one program" --per-node -a 1 $true : -f 1 $true
set -- -a 1 $true
for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    set -- "$@" : -f "$number" $true
done
refuse "at most 16 programs are supported" "$@"

setting=STEPAF_ROLE=attention
refuse "STEPAF_ROLE=attention is in the environment and would be the role of every rank" -a 1 -f 1 $true
setting=
if [ "$(id -u)" -eq 0 ]; then
    setting=OMPI_ALLOW_RUN_AS_ROOT=0
    refuse "Open MPI starts no program as root: to start it anyway, give --allow-root" -a 1 -f 1 $true
    expect 0 env PATH="$bin" $setting "$run" -a 1 -f 1 --allow-root $true
    is out started
fi

# What it takes: help, version, and a full disk is noticed.
expect 0 "$run" --help
has out '--per-node'
lacks out '--exec'
expect 0 "$run" --version
has out "^stepaf-run $(sed -n 's/^version=//p' "$top_srcdir/VERSION")\$"
if [ -w /dev/full ]; then
    env PATH="$bin" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        "$run" --dry-run -a 1 -f 1 $true >/dev/full 2>/dev/null
    [ $? -eq 2 ] || fail "a full disk goes unnoticed"
fi
exit $failed
