# SPDX-License-Identifier: Apache-2.0
# Judges what layers.sh has found, by layers.list, which comes first.
#
#   file FILE
#   include FILE LINE HEADER QUOTE
#   OBJECT: SYMBOL TYPE ...            of nm

function wrong(where, why)
{
    print where ": " why
    failed = 1
}

# ---- the list ----

FNR == NR {
    if ($1 == "in") {
        dir = $2
        height = 0
        ordered[dir] = 1
    } else if ($1 == "up") {
        sub(/:$/, "", $3)
        up[$2, $3] = 0
        n_up++
        split($2, one, "/")
        split($3, other, "/")
        if (one[1] != other[1] || NF < 4)
            wrong("layers.list", "up " $2 " " $3 ": stays within a room, and says why")
    } else if (NF && $1 !~ /^#/) {
        height++
        for (i = 1; i <= NF; i++)
            level[dir, $i] = named[dir, $i] = height
    }
    next
}

# ---- uses within src ----

# By what name the list of DIRECTORY has NAME, which is a directory or a file of it.
function entry(directory, name, is_directory)
{
    if ((directory, name) in level)
        return name
    if (!is_directory) {
        sub(/\.[ch]$/, "", name)
    } else if ((directory, "*") in level) {
        level[directory, name] = level[directory, "*"]
        there[directory, "*"] = 1
    }
    return name
}

# Every file has a place, as have the directories that it is in.
function find_place(file,    part, n, i, directory, name)
{
    n = split(file, part, "/")
    directory = "src"
    for (i = 2; i <= n && directory in ordered; directory = directory "/" part[i++]) {
        name = entry(directory, part[i], i < n)
        there[directory, name] = 1
        if ((directory, name) in looked_up)
            continue
        looked_up[directory, name] = 1
        if (!((directory, name) in level))
            wrong(file, name " has no place in " directory " of layers.list")
        else if (i < n && (directory, name) in named && !(directory "/" name in ordered))
            wrong("layers.list", directory "/" name " has no order")
    }
}

# One file of src uses another.
function use(where, from, to, what,    a, b, n, m, i, directory, x, y, mine, its)
{
    n = split(from, a, "/")
    m = split(to, b, "/")
    directory = "src"
    for (i = 2; a[i] == b[i] && i < n && i < m; i++)
        directory = directory "/" a[i]
    x = entry(directory, a[i], i < n)
    y = entry(directory, b[i], i < m)
    mine = substr(directory "/" x, 5)
    its = substr(directory "/" y, 5)
    if (!((directory, x) in level) || !((directory, y) in level) || mine == its)
        return
    uses++
    if (i == 2 && m > 3)
        wrong(where, what ": what " b[2] "/" b[3] " has is its own")
    else if (level[directory, x] == level[directory, y])
        wrong(where, what ": " mine " and " its " stand side by side")
    else if (level[directory, x] < level[directory, y] && (mine, its) in up)
        up[mine, its]++
    else if (level[directory, x] < level[directory, y])
        wrong(where, what " points up, from " mine " to " its)
}

# ---- includes ----

function under(prefix) { return index(file, prefix) == 1 }

function refuse(why) { wrong(file ":" line, header ": " why) }

# Where a library may be included.
function foreign()
{
    if (header ~ /^hwloc/ && file != "src/topo/load.h" && file != "mpi_launch/run/bind.c")
        refuse("only src/topo/load.h and mpi_launch/run/bind.c may include hwloc")
    if (header ~ /^sodium/ && file != "src/base/proof.c")
        refuse("only src/base/proof.c may include libsodium")
    if (header ~ /^(mpi.h|pmix)/ && under("mpi_launch/run/"))
        refuse("stepaf-run starts any MPI and is bound to none")
    if (header == "mpi.h" && !under("mpi_launch/") && !under("bench/") &&
        file != "include/stepaf/mpi.h")
        refuse("only mpi_launch/, bench/ and stepaf/mpi.h may include MPI")
    if (header ~ /^pmix/ && !under("mpi_launch/"))
        refuse("only mpi_launch/ may include PMIx")
    if (header ~ /^(cuda|nccl|nvml)/ && !under("src/device/cuda/") && !under("bench/perf/gpu/"))
        refuse("only src/device/cuda/ and bench/perf/gpu/ may include CUDA")
    if (header ~ /^rdma\/(fabric|fi_)/) {
        if (!under("src/transport/ofi/") && !under("bench/perf/ofi"))
            refuse("only src/transport/ofi/ and bench/perf/ofi* may include libfabric")
    } else if (header ~ /^uc[pst]\//) {
        if (!under("src/transport/ucx/") && !under("bench/perf/ucx"))
            refuse("only src/transport/ucx/ and bench/perf/ucx* may include UCX")
    } else if (header ~ /^(infiniband|rdma)\// && !under("src/transport/verbs/") &&
        !under("bench/perf/verbs"))
        refuse("only src/transport/verbs/ and bench/perf/verbs* may include RDMA libraries")
}

# Rows of settings are data: they include nothing but such rows, and code has all of them or none. Only the
# registry of devices has the list of devices.
function rows()
{
    if (file ~ /\.def$/ && header !~ /\.def$/)
        refuse("a .def file includes .def files only")
    if (file == "src/device/registry.c" && header == "device/registry.def")
        return
    if (file !~ /\.def$/ && header != "settings/all.def")
        refuse("only settings/all.def may be included by code")
}

$1 == "file" {
    files++
    if ($2 ~ /^src\/.*\.[ch]$/) {
        source[$2] = 1
        find_place($2)
    }
}

$1 == "include" {
    file = $2
    line = $3
    header = $4
    includes++
    foreign()
    split(header, part, "/")
    if (under("src/")) {
        if (file ~ /\.def$/ || header ~ /\.def$/)
            rows()
        else if (("src", part[1]) in level)
            use(file ":" line, file, "src/" header, header)
    } else if (!under("tools/") && ("src", part[1]) in level &&
               !((part[1] == "topo" || header == "base/outlet.h") && under("mpi_launch/run/")) &&
               !(part[1] == "gpu" && under("bench/perf/"))) # which has a directory of that name
        refuse("only src/, tools/ and test/ may see the inside")
    if (under("include/") && $5 == "\"")
        refuse("public headers include by <>")
    if (header == "stepaf/mpi.h" && under("src/"))
        refuse("the core does not know MPI")
}

# ---- symbols ----

# What a build has kept of files that are gone does not count.
$1 ~ /\.o:$/ {
    object = $1
    sub(/\.libs\//, "", object)
    sub(/libstepaf_core_la-/, "", object)
    sub(/\.o:$/, ".c", object)
    if (!(object in source))
        next
    built[object] = 1
    if ($3 ~ /^[Uvw]$/)
        wanted[object, $2] = 1
    else
        defined[$2] = object
}

END {
    for (pair in wanted) {
        split(pair, one, SUBSEP)
        if (!(one[2] in defined) || defined[one[2]] == one[1])
            continue
        calls++
        use(one[1], one[1], defined[one[2]], one[2])
    }
    for (pair in level) {
        split(pair, one, SUBSEP)
        if (!(pair in there))
            wrong("layers.list", one[1] " has no " one[2])
    }
    for (pair in up) {
        split(pair, one, SUBSEP)
        from = "src/" one[1] ".c"
        to = "src/" one[2] ".c"
        # A build may leave both out, and with them what one uses of the other.
        if (!up[pair] && (!(from in source) || !(to in source) || (from in built && to in built)))
            wrong("layers.list", "up " one[1] " " one[2] ": there is no such use")
    }
    if (n_up >= 15)
        wrong("layers.list", n_up " uses point up")
    printf "%d files, %d includes, %d uses of symbols; %d point up\n", files, includes, calls, n_up
    exit failed || !includes || !calls
}
