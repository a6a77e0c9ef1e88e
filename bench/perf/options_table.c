/* SPDX-License-Identifier: Apache-2.0 */
#include "options_table.h"

/* One option: its name, key, argument and help. */
#define OPTION(name_, key_, argument_, help_) \
    {                                         \
        name_, key_, argument_, 0, help_, 0   \
    }
/* One whose argument may be left out. */
#define OPTION_MAYBE(name_, key_, argument_, help_)           \
    {                                                         \
        name_, key_, argument_, OPTION_ARG_OPTIONAL, help_, 0 \
    }
#define HEADING(text_, group_)          \
    {                                   \
        NULL, 0, NULL, 0, text_, group_ \
    }

const struct argp_option perf_option_table[] = {
    HEADING("Ranks:", GROUP_RANKS),
    OPTION("procs", KEY_PROCS, "N", "fork N processes here, without a launcher and without MPI"),
    OPTION_MAYBE(
        "listen", KEY_LISTEN, "PORT",
        "be the first of two ranks, without a launcher, and wait for the other at a port (18516)"),
    OPTION("connect", KEY_CONNECT, "HOST[:PORT]", "be the other rank, and connect to the first"),
    OPTION("split", KEY_SPLIT, "SPLIT",
           "roles of the ranks: attn=A,ffn=F[,interleave] or map=FILE"),
    OPTION("transport", KEY_TRANSPORT, "NAME",
           "what links may use, as the setting STEPAF_TRANSPORTS, which it overrides"),
    HEADING("Tensors:", GROUP_TENSORS),
    OPTION("size", KEY_SIZE, "LIST", "bytes both ways: 64,4K or 8:8M[:FACTOR] (8:8M unless given)"),
    OPTION("push-size", KEY_PUSH_SIZE, "LIST", "bytes from attention to FFN ranks"),
    OPTION("pull-size", KEY_PULL_SIZE, "LIST", "bytes back"),
    OPTION("shape", KEY_SHAPE, "LIST", "shapes instead of sizes, such as 128x7168"),
    OPTION("push-dtype", KEY_PUSH_DTYPE, "TYPE", "of --shape, there (bf16)"),
    OPTION("pull-dtype", KEY_PULL_DTYPE, "TYPE", "of --shape, back (bf16)"),
    OPTION("route-topk", KEY_ROUTE_TOPK, "K", "also push K i32 expert ids and K f32 weights a row"),
    OPTION("scatter", KEY_SCATTER, NULL, "cut tensors into one slice of rows for each FFN rank"),
    OPTION("memory", KEY_MEMORY, "lib|user",
           "tensors in stepaf_alloc or in registered memory (lib)"),
    HEADING("Operations:", GROUP_OPERATIONS),
    OPTION("microbatches", 'm', "M", "plans with keys of their own, in flight together (1)"),
    OPTION("depth", 'd', "D", "buffers of a key, so operations of one plan in flight (1)"),
    OPTION("recv", KEY_RECV, "any|each", "how FFN ranks receive (any; of GPU memory each)"),
    OPTION("release", KEY_RELEASE, "with|apart",
           "release with the response, or in a call after it (with)"),
    OPTION("iters", 'i', "N", "timed operations of each attention rank, at most (10000)"),
    OPTION("warmup", 'w', "N", "operations before that, at most (1000)"),
    OPTION("max-time", KEY_MAX_TIME, "S",
           "seconds for each row and contender, about; 0: no bound (1)"),
    OPTION("rounds", KEY_ROUNDS, "N", "blocks in which contenders take turns (20)"),
    OPTION("forever", KEY_FOREVER, NULL,
           "measure the rows again and again, until SIGINT or SIGTERM ends it"),
    OPTION("batch", KEY_BATCH, "FILE",
           "a test for each line of the file, which has a test and options of its own"),
    OPTION("timeout", KEY_TIMEOUT, "S", "deadline of each wait (STEPAF_TIMEOUT_US)"),
    HEADING("Tensors in GPU memory, operations on CUDA streams:", GROUP_GPU),
    OPTION("mem", KEY_MEM, "host|cuda", "where tensors are (host)"),
    OPTION_MAYBE("stream", KEY_STREAM, "N", "enqueue one by one, N operations a sample (1)"),
    OPTION_MAYBE("graph", KEY_GRAPH, "N",
                 "capture N operations (32) on each side and replay the graph, a sample each time"),
    OPTION_MAYBE(
        "load", KEY_LOAD, "SMS",
        "measure also beside a kernel that fills the GPUs except for SMS multiprocessors (0), "
        "which are reserved for the exchange"),
    HEADING("Comparison and proof:", GROUP_PROOF),
    OPTION("check", KEY_CHECK, NULL,
           "as many operations again with fresh random bytes, every byte verified"),
    OPTION("corrupt", KEY_CORRUPT, "N",
           "spoil a byte of every Nth answer, to see that --check finds it"),
    OPTION("baseline", KEY_BASELINE, "mpi|nccl|nccl-fused",
           "persistent MPI messages of the same pattern and buffers in turn; with --mem cuda NCCL"),
    OPTION("no-floor", KEY_NO_FLOOR, NULL, "leave out the bare loop"),
    OPTION("trace-cost", KEY_TRACE_COST, NULL, "measure what tracing costs an operation"),
    OPTION("answers", KEY_ANSWERS, "K",
           "measure operations that K answers complete, also while an FFN rank is stopped"),
    OPTION("startup", KEY_STARTUP, NULL,
           "measure init and commit beside MPI_Init instead of operations"),
    OPTION("keys", KEY_KEYS, "N", "keys of --startup (64)"),
    HEADING("Output:", GROUP_OUTPUT),
    OPTION("csv", KEY_CSV, NULL, "comma-separated table"),
    OPTION("json", KEY_JSON, "FILE", "also write an array with one object a row"),
    OPTION("samples", KEY_SAMPLES, "FILE", "also write every single time, a line each"),
    OPTION("report", KEY_REPORT, "FILE",
           "also make an HTML file with tables and pictures; the JSON is beside it"),
    OPTION("trace", KEY_TRACE, "FILE", "write a merged trace for Perfetto or chrome://tracing"),
    {0}};
