/* SPDX-License-Identifier: Apache-2.0 */
/* The settings: the one table that makes the fields, the parser, stepaf_info's listings and the
 * man page stepaf_settings(7). No include guard: it is expanded several times.
 *
 * INT(NAME, field, default, min, max, rule, unit, must_agree, help)
 *     rule, beyond the bounds: ANY_VALUE, POWER_OF_TWO or MULTIPLE_OF_4096
 * ENUM(NAME, field, default, "a|b|c", must_agree, help)   field is the index of the word
 * STR(NAME, field, default, form, syntax, must_agree, help)   field is a const char *
 *     form: one of enum stepaf_env_form
 *
 * must_agree: 1 if all ranks have to have the same value (checked at init).
 * The environment variable is STEPAF_<NAME>. */

ENUM(ROLE, role, "auto", "attention|ffn|auto", 0,
     "role of this rank; auto: by STEPAF_SPLIT or the MPMD application number")
STR(SPLIT, split, "", ANY_TEXT,
    "attn=N,ffn=M[,interleave], attn=per-node:N,ffn=per-node:M, or map=FILE", 1,
    "roles of all ranks, in rank order; the side that is left out takes the rest; per-node: counts "
    "of each node; interleave deals them out evenly; a map file has one 'attention' or 'ffn' a "
    "line")
INT(INIT_TIMEOUT_US, init_timeout_us, 60000000, 1000, 3600000000, ANY_VALUE, "us", 0,
    "deadline of stepaf_init")
INT(COMMIT_TIMEOUT_US, commit_timeout_us, 60000000, 1000, 3600000000, ANY_VALUE, "us", 0,
    "deadline of stepaf_commit")
ENUM(
    BOOT, boot, "auto", "mpi|pmix|local|auto", 1,
    "bootstrap where a program leaves the choice: local: processes of this machine, started one by "
    "one; auto: local where STEPAF_LOCAL_SIZE is set, else MPI in a program that has it, else PMIx "
    "if the launcher offers it")
INT(LOCAL_SIZE, local_size, 0, 0, 1024, ANY_VALUE, "processes", 0,
    "number of processes of a job that no launcher starts; 0: there is a launcher")
INT(LOCAL_RANK, local_rank, 0, 0, 1023, ANY_VALUE, "", 0,
    "this process's number in such a job, from 0 on: has to be set there, and means nothing "
    "elsewhere")
STR(LOCAL_JOB, local_job, "", NAME,
    "name of at most 64 letters, digits, dots, dashes and underscores", 0,
    "tells such jobs of one user apart; of those without a name one can start at a time")
ENUM(MESH, mesh, "full", "full|lane", 1,
     "who talks to whom: full: every attention rank with every FFN rank; lane: attention rank i "
     "with the FFN ranks f for which i and f, modulo STEPAF_LANES, are the same")
INT(LANES, lanes, 0, 0, 16777216, ANY_VALUE, "lanes", 1,
    "number of lanes, with STEPAF_MESH=lane only and at most the ranks of each role; 0: the "
    "greatest common divisor of the two roles' numbers of ranks")
INT(TIMEOUT_US, timeout_us, 10000000, 1, 3600000000, ANY_VALUE, "us", 0,
    "deadline of waits whose timeout is STEPAF_TIMEOUT_DEFAULT")
INT(DEPTH, depth, 1, 1, 32, ANY_VALUE, "buffers", 1, "depth of keys that do not say theirs")
ENUM(PROGRESS, progress, "inline", "inline|thread", 0,
     "who makes operations advance: the waiting thread, or a thread of the library's")
STR(PROGRESS_CORES, progress_cores, "", ANY_TEXT, "list of cores such as 3 or 0-1,4", 0,
    "cores that the progress thread is bound to; empty: near the rank's own, by hwloc")
ENUM(BACKOFF, backoff, "auto", "auto|spin|yield|sleep", 0,
     "how a waiting thread idles: spin: never gives up its core; yield: spins, then yields; sleep: "
     "also sleeps when idle for long; auto: sleep, yielding at once if ranks outnumber cores")
INT(SPIN_US, spin_us, 200, 0, 1000000, ANY_VALUE, "us", 0,
    "how long a waiting thread spins before it yields, where ranks do not outnumber cores")
INT(SLEEP_AFTER_US, sleep_after_us, 20000, 0, 3600000000, ANY_VALUE, "us", 0,
    "how long a waiting thread yields before it sleeps between polls")
ENUM(TRACE, trace, "on", "on|off", 0, "stamp every operation into the trace ring")
INT(TRACE_RECORDS, trace_records, 4096, 16, 16777216, POWER_OF_TWO, "records", 0,
    "size of the trace ring; 32 bytes each")
ENUM(CLOCK, clock, "auto", "auto|ping", 1,
     "common clock of traces: auto: nodes' own where ranks share one, else estimated by pings at "
     "commit; ping: always estimate")
STR(TRANSPORTS, transports, "", NAMES, "list such as shm,verbs,tcp", 1,
    "transports that may be used; empty: all that can be")
STR(NET_IF, net_if, "", NETWORK, "interface, or subnet such as 10.1.0.0/16 or fd00::/64", 0,
    "where to reach ranks on other nodes; empty: over any interface, by the routes to them")
STR(NET_PORTS, net_ports, "", PORTS, "port, or first-last", 0,
    "ports that FFN ranks may listen on during commit; empty: any that is free")
ENUM(SHM_CMA, shm_cma, "auto", "auto|on|off", 0,
     "cross-memory attach for registered memory of a peer on the node: auto: where the kernel "
     "permits it; on: fail where it does not; off: through a ring")
INT(SHM_RING_SLOTS, shm_ring_slots, 16, 4, 1024, POWER_OF_TWO, "slots", 1,
    "notifications that a peer may be behind; 64 bytes each")
INT(SHM_FRAGMENT_BYTES, shm_fragment_bytes, 32768, 4096, 1048576, MULTIPLE_OF_4096, "bytes", 1,
    "size of a ring's staging fragment, where cross-memory attach is not permitted")
STR(NET_DEVICES, net_devices, "", ANY_TEXT, "list of device[:port], such as mlx5_0,mlx5_1:2", 0,
    "RDMA devices, each of them a rail; empty: the nearest one that has an active port")
ENUM(VERBS_CONNECT, verbs_connect, "auto", "auto|oob|cm", 1,
     "how queue pairs are connected: oob: by what the ranks tell each other in the commit; cm: by "
     "librdmacm, over IP; auto: cm on iWARP, and where a port has no GID, else oob")
ENUM(VERBS_LAG, verbs_lag, "auto", "auto|1|2|off", 0,
     "port of a bond of NVIDIA's (mlx5) that queue pairs send by; auto: they take turns, where the "
     "device is such a bond; off: as the device chooses")
INT(VERBS_QPS, verbs_qps, 1, 1, 4, ANY_VALUE, "queue pairs", 1,
    "RDMA queue pairs between two ranks on each rail; large tensors are divided among them")
INT(VERBS_STRIPE_BYTES, verbs_stripe_bytes, 262144, 4096, 1073741824, ANY_VALUE, "bytes", 0,
    "size from which on a tensor is divided, where there are several queue pairs or rails")
INT(VERBS_SEND_DEPTH, verbs_send_depth, 128, 32, 8192, ANY_VALUE, "work requests", 0,
    "writes and notifications that a queue pair may have under way")
INT(VERBS_RECEIVES, verbs_receives, 64, 16, 4096, POWER_OF_TWO, "notifications", 1,
    "notifications that a peer may be behind on a queue pair; 64 bytes each on the first")
ENUM(VERBS_NOTIFY, verbs_notify, "auto", "auto|imm|send", 1,
     "how a peer learns what has landed: imm: by a write's 32 bits; send: by a message after the "
     "writes; auto: send on iWARP, which has no such bits, else imm")
ENUM(VERBS_SLEEP, verbs_sleep, "poll", "poll|event", 0,
     "how a waiting thread that sleeps (STEPAF_BACKOFF) hears of RDMA: poll: it looks every 50 us; "
     "event: the device's completion channel wakes it, and it looks every ms")
ENUM(VERBS_ORDER, verbs_order, "relaxed", "relaxed|strict", 0,
     "whether a device's writes of tensors may overtake each other on the way to memory; relaxed: "
     "where the device offers that")
ENUM(VERBS_GPU, verbs_gpu, "auto", "auto|dmabuf|peermem|staged", 0,
     "how RDMA devices reach GPU memory of plans that are started by the host: dmabuf: by dma-buf; "
     "peermem: by a module of the GPU's driver (nvidia_peermem); staged: not at all, it is copied "
     "through pinned host memory; auto: the first of these that works")
STR(VERBS_GID_INDEX, verbs_gid_index, "", INDEX, "number", 0,
    "entry of the port's GID table; empty: RoCEv2 over IPv4 if there is one")
INT(VERBS_TRAFFIC_CLASS, verbs_traffic_class, 0, 0, 255, ANY_VALUE, "class", 0,
    "traffic class of RDMA packets, where the network needs one to lose none")
INT(VERBS_RETRY, verbs_retry, 7, 0, 7, ANY_VALUE, "times", 0,
    "how often a device sends again what is not acknowledged")
INT(VERBS_TIMEOUT, verbs_timeout, 14, 1, 31, ANY_VALUE, "exponent", 0,
    "and after how long: 4.096 us * 2^this")
INT(VERBS_PEER_TIMEOUT_US, verbs_peer_timeout_us, 5000000, 1000, 3600000000, ANY_VALUE, "us", 0,
    "how long a peer's device may acknowledge nothing, whatever the device's own retries, before "
    "the peer is lost")
INT(TCP_CONNECTIONS, tcp_connections, 1, 1, 8, ANY_VALUE, "connections", 1,
    "TCP connections between two ranks; large tensors are divided among them")
INT(TCP_STRIPE_BYTES, tcp_stripe_bytes, 262144, 65536, 1073741824, ANY_VALUE, "bytes", 0,
    "size from which on a tensor is divided, where there are several connections")
ENUM(TCP_ZEROCOPY, tcp_zerocopy, "auto", "auto|on|off", 0,
     "send large tensors without a copy: auto: unless the kernel says that it has copied all the "
     "same")
INT(TCP_ZEROCOPY_BYTES, tcp_zerocopy_bytes, 131072, 4096, 1073741824, ANY_VALUE, "bytes", 0,
    "size from which on a tensor is sent without a copy")
INT(TCP_CONNECT_US, tcp_connect_us, 3000000, 1000, 3600000000, ANY_VALUE, "us", 0,
    "how long to try one address of a peer before the next one")
INT(TCP_PEER_TIMEOUT_US, tcp_peer_timeout_us, 10000000, 1000000, 3600000000, ANY_VALUE, "us", 0,
    "how long a peer's host may be silent, without an answer of its TCP, before the peer is lost; "
    "on an idle connection 4 s at least")
ENUM(CUDA_ENGINE, cuda_engine, "auto", "auto|sm|ce", 0,
     "what carries tensors of stream plans from GPU to GPU: sm: kernels of the library's; ce: the "
     "GPU's copy engines, which leave the multiprocessors alone, and are the safer choice where "
     "one GPU "
     "reaches another over PCIe, which has not been tried; auto: by size")
INT(CUDA_BLOCKS, cuda_blocks, 0, 0, 1056, ANY_VALUE, "blocks", 0,
    "blocks of one warp that a kernel of a stream plan has at most; 0: by size and the number of "
    "stream plans")
ENUM(
    CUDA_RELAY, cuda_relay, "auto", "auto|always", 0,
    "whether tensors of stream plans go by way of host memory and the ordinary transports: always: "
    "between this rank and all its peers, also those with plans in host memory; auto: only to and "
    "from other nodes, and ranks that have no GPU. Takes STEPAF_PROGRESS=thread")
INT(STREAM_TIMEOUT_US, stream_timeout_us, 10000000, 0, 3600000000, ANY_VALUE, "us", 0,
    "how long a stream waits for its peers before the plan fails; 0: until they come or are lost")
ENUM(PRINT_MAP, print_map, "0", "0|1", 1,
     "1: at the end of the first commit, world rank 0 prints where the ranks are and which "
     "transport connects each pair; takes one exchange more")
ENUM(LOG_LEVEL, log_level, "warn", "none|error|warn|info|debug", 0, "what is logged")
STR(LOG_FILE, log_file, "", ANY_TEXT, "file name; %p stands for the process id", 0,
    "where log lines go; empty: standard error")
