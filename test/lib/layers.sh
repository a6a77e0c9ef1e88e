#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes point down only: base < settings < boot, topo, device, wire < transport < core < map < wireup < gpu < api.
# One transport does not know another, nor one device, a library is included in the one place that wraps it,
# and the programs see the public headers only, but for stepaf-run, which shares what src/topo knows of a
# machine.
set -u
cd "${top_srcdir:-.}" || exit 99

find include src mpi_launch tools bench -name '*.[ch]' -o -name '*.def' -o -name '*.in' -path '*/stepaf/*' | sort |
    xargs awk '
BEGIN {
    level["base"] = 1
    level["settings"] = 2
    level["boot"] = level["topo"] = level["device"] = level["wire"] = 3
    level["transport"] = 4
    level["core"] = 5
    level["map"] = 6
    level["wireup"] = 7
    level["gpu"] = 8
    level["api"] = 9
}
function wrong(why)
{
    printf "%s:%d: %s: %s\n", FILENAME, FNR, header, why
    failed = 1
}
function under(prefix) { return index(FILENAME, prefix) == 1 }
# Where a library may be included.
function foreign()
{
    if (header ~ /^hwloc/ && FILENAME != "src/topo/topo.c" &&
        FILENAME != "mpi_launch/run/bind.c")
        wrong("only src/topo/topo.c and mpi_launch/run/bind.c may include hwloc")
    if (header ~ /^sodium/ && FILENAME != "src/transport/tcp/proof.c")
        wrong("only src/transport/tcp/proof.c may include libsodium")
    if (header ~ /^(mpi.h|pmix)/ && under("mpi_launch/run/"))
        wrong("stepaf-run starts any MPI and is bound to none")
    if (header == "mpi.h" && !under("mpi_launch/") && !under("bench/") &&
        FILENAME != "include/stepaf/mpi.h")
        wrong("only mpi_launch/, bench/ and stepaf/mpi.h may include MPI")
    if (header ~ /^pmix/ && !under("mpi_launch/"))
        wrong("only mpi_launch/ may include PMIx")
    if (header ~ /^(cuda|nccl|nvml)/ && !under("src/device/cuda/") && !under("bench/perf/gpu/"))
        wrong("only src/device/cuda/ and bench/perf/gpu/ may include CUDA")
    if (header ~ /^(infiniband|rdma)\// && !under("src/transport/verbs/") &&
        !under("bench/perf/verbs"))
        wrong("only src/transport/verbs/ and bench/perf/verbs* may include RDMA libraries")
}
# Rows of settings are data: they include nothing but such rows, and code has all of them or none.
function rows()
{
    if (FILENAME ~ /\.def$/ && header !~ /\.def$/)
        wrong("a .def file includes .def files only")
    if (FILENAME !~ /\.def$/ && header != "settings/all.def")
        wrong("only settings/all.def may be included by code")
}
# What a file of src/ may include of src/.
function inside(    mine, theirs, n, m)
{
    n = split(FILENAME, mine, "/")
    m = split(header, theirs, "/")
    if (!(theirs[1] in level))
        return
    if (theirs[1] == mine[2]) {
        if (n > 3 && m > 2 && mine[3] != theirs[2])
            wrong("one " mine[2] " may not know another")
    } else if (theirs[1] == "device" && m > 2) {
        wrong("what a device has in its directory is its own")
    } else if (level[theirs[1]] >= level[mine[2]])
        wrong("includes point down: " mine[2] " may not know " theirs[1])
}
FNR == 1 { files++ }
/^[ \t]*#[ \t]*include/ {
    header = $0
    sub(/^[^<"]*[<"]/, "", header)
    sub(/[>"].*/, "", header)
    includes++
    foreign()
    if (under("src/")) {
        split(FILENAME, part, "/")
        if (!(part[2] in level))
            wrong("src/" part[2] " is in no layer")
        if (FILENAME ~ /\.def$/ || header ~ /\.def$/)
            rows()
        if (FILENAME != "src/settings/all.def")
            inside()
    } else if (!under("tools/")) {
        split(header, part, "/")
        if (part[1] in level && !(part[1] == "topo" && under("mpi_launch/run/")) &&
            !(part[1] == "gpu" && under("bench/perf/"))) # which has a directory of that name
            wrong("only src/, tools/ and test/ may see the inside")
    }
    if (under("include/") && index($0, "\""))
        wrong("public headers include by <>")
    if (header == "stepaf/mpi.h" && under("src/"))
        wrong("the core does not know MPI")
}
END {
    printf "%d files, %d includes\n", files, includes
    exit failed || !includes
}'
