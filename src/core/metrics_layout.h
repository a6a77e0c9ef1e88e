/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of what a rank shows to tools on the same machine: a file in memory, which tools find
 * by its name among the file descriptors of a process, so that nothing must be prepared.
 * tools/stepaf_regions.py reads it.
 *
 *   head          identity of the rank, and where the tables lie
 *   counters      stepaf_counters_t, without its size
 *   peers         an entry each, in the order of ctx->peers
 *   histograms    STEPAF_TIMES of each peer: only while a tool asks for them
 *   late          late operations of each peer and of this rank: only if verdicts are on
 *
 * A tool copies everything and compares live.sequence before and after; if it is odd or has
 * changed, the tool repeats the copy. The sequence stays odd if the process is stopped during a
 * write; the process is alive nevertheless. The sequence does not cover histograms: each of
 * their words is valid at any time. The only word that a tool writes is wish.until_ns. This
 * process reads no other word of the file: anything else written there changes the figures
 * shown, and nothing else.
 *
 * Appending keeps the version, since all sizes are in the file. Changing what is there requires
 * the next version. */
#ifndef STEPAF_CORE_METRICS_LAYOUT_H
#define STEPAF_CORE_METRICS_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#define STEPAF_METRICS_NAME "stepaf:metrics"
#define STEPAF_METRICS_MAGIC "stepaf\r\n"

enum {
    STEPAF_METRICS_VERSION = 1,
    STEPAF_METRICS_ALIGN = 64,
    /* A histogram has 4 buckets per octave: a bucket's middle is off by 12.5 % at most. */
    STEPAF_HISTOGRAM_LOW_BITS = 8,   /* the first bucket ends here: 256 ns */
    STEPAF_HISTOGRAM_HIGH_BITS = 34, /* the last bucket begins here: 17 s */
    STEPAF_HISTOGRAM_STEP_BITS = 2,
    STEPAF_HISTOGRAM_BUCKETS =
        ((STEPAF_HISTOGRAM_HIGH_BITS - STEPAF_HISTOGRAM_LOW_BITS) << STEPAF_HISTOGRAM_STEP_BITS) +
        2,
};

/* The times measured at each peer: each role measures what it knows of every operation. */
enum {
    STEPAF_TIME_ROUND = 0, /* attention: from the start to the answer */
    /* attention: the same without the FFN rank's share; if answers report it */
    STEPAF_TIME_WAYS = 1,
    STEPAF_TIME_QUEUE = 0, /* FFN: from the arrival until the caller takes it */
    STEPAF_TIME_WORK = 1,  /* FFN: from then until it is answered */
    STEPAF_TIMES = 2
};

enum {
    STEPAF_METRICS_PHASES = 12, /* space for the phases of verdicts */
    STEPAF_METRICS_WAYS = 3,    /* phases that name rails */
    STEPAF_METRICS_RAILS = 16,
    STEPAF_METRICS_PEER_RAILS = 8 /* maximum of a link */
};

struct stepaf_histogram {
    uint64_t sum_ns;
    uint64_t buckets[STEPAF_HISTOGRAM_BUCKETS];
};

/* Position of a table: @a n entries of @a bytes each. */
struct stepaf_metrics_table {
    uint32_t at, bytes, n, spare;
};

struct stepaf_metrics_who {
    uint64_t job; /* the same at all ranks of a job, but see stepaf_metrics_open */
    uint32_t pid;
    uint32_t role; /* stepaf_role_t */
    int32_t world_rank, world_size;
    int32_t rank; /* within its role's group */
    uint32_t spare;
    char name[32]; /* STEPAF_METRICS_JOB */
    char host[64];
    char library[32]; /* its version */
};

struct stepaf_metrics_live {
    _Atomic uint64_t sequence;
    int64_t written_ns; /* CLOCK_MONOTONIC */
    uint64_t epoch, commits;
    uint32_t n_alive, n_peers;
    uint32_t life;     /* number of the process in this rank's place, from 1 on */
    uint32_t measures; /* 1: histograms are being updated */
    int64_t began_ns;  /* CLOCK_MONOTONIC */
};

struct stepaf_metrics_wish {
    _Atomic int64_t until_ns; /* CLOCK_MONOTONIC: histograms are wanted until then */
};

/* What stepaf_verdict_query returns; also covered by the sequence. */
struct stepaf_metrics_verdict {
    int64_t window_ns; /* 0: verdicts are off */
    uint64_t operations, late, unjudged;
    int64_t usual_ns;
    int32_t phase; /* stepaf_verdict_phase_t */
    int32_t peer;  /* world rank of the peer; -1: this rank, or none */
    uint64_t by_phase[STEPAF_METRICS_PHASES];
    int64_t over_ns[STEPAF_METRICS_PHASES];
    int32_t rail; /* -1: none */
    uint32_t spare;
};

/* All late operations so far, by verdict: those that name a peer, or, in the last entry, all
 * others. */
struct stepaf_metrics_late {
    uint32_t by_phase[STEPAF_METRICS_PHASES];
    /* Of these, the operations whose verdict names a rail: way there, way back, network. */
    uint32_t by_rail[STEPAF_METRICS_WAYS][STEPAF_METRICS_RAILS];
};

struct stepaf_metrics_head {
    char magic[8];
    uint32_t version;
    uint32_t bytes; /* of this structure */
    uint64_t all_bytes;
    struct stepaf_metrics_table counters, peers, histograms;
    struct stepaf_metrics_who who;
    struct stepaf_metrics_live live;
    struct stepaf_metrics_wish wish;
    struct stepaf_metrics_verdict verdict;
    struct stepaf_metrics_table late;
};

enum { STEPAF_METRICS_LOST = 1, STEPAF_METRICS_OUT = 2 };
enum { STEPAF_METRICS_RAIL_UP = 1 };

struct stepaf_metrics_rail {
    uint64_t bytes_sent; /* as in struct stepaf_rail_count */
    uint32_t flags;      /* STEPAF_METRICS_RAIL_UP */
    char name[28];
};

struct stepaf_metrics_peer {
    int32_t world_rank, rank;
    uint32_t flags;  /* STEPAF_METRICS_LOST, _OUT */
    uint32_t queued; /* posts that wait for space */
    uint32_t ready;  /* batches not taken yet */
    uint32_t lives;  /* processes that have had the peer's place, as far as this rank knows */
    uint64_t bytes_sent, bytes_received, messages_sent; /* of its link */
    int64_t clock_bound_ns;
    char link[32]; /* its transport; "": none yet */
    char address[48];
    char reason[96];                         /* why it is lost */
    uint32_t connects_again, messages_again; /* of its link */
    uint32_t n_rails;
    uint32_t written_us; /* of this entry: low bits of CLOCK_MONOTONIC; many entries take turns */
    struct stepaf_metrics_rail rails[STEPAF_METRICS_PEER_RAILS];
};

_Static_assert(sizeof(struct stepaf_metrics_head) == 560 &&
                   sizeof(struct stepaf_metrics_verdict) == 248 &&
                   sizeof(struct stepaf_metrics_late) == 240 &&
                   sizeof(struct stepaf_metrics_who) == 160 &&
                   sizeof(struct stepaf_metrics_live) == 56 &&
                   sizeof(struct stepaf_metrics_peer) == 568 &&
                   sizeof(struct stepaf_histogram) == 8 * (STEPAF_HISTOGRAM_BUCKETS + 1),
               "tools read it");

#endif
