/* SPDX-License-Identifier: Apache-2.0 */
/* Chaos: shared by the files of the test. Each rank is a supervisor, which has no context, and the
 * process of its present life. One more process, the director, makes the faults; a page that all
 * see says what has been done. */
#ifndef STEPAF_TEST_CHAOS_H
#define STEPAF_TEST_CHAOS_H

#include "harness.h"

enum {
    CHAOS_PLANS = 3,
    CHAOS_DEPTH = 2,
    CHAOS_STATUSES = 24,
    CHAOS_SAMPLES = 8192,
    CHAOS_ADDRESS = 64,
    CHAOS_HOST = 32,
    CHAOS_WHY = 340,
    CHAOS_HANG_S = 30,
    CHAOS_SPARE = 2 /* ranks that the larger half could lose while the network is cut */
};

/* How a life's process ends. */
enum { CHAOS_DONE = 0, CHAOS_FAILED = 1, CHAOS_AGAIN = 2, CHAOS_GIVEN_UP = 3 };

/* What the director does to ranks and to the network. */
#define CHAOS_FAULTS(_)                                                \
    _(CHAOS_KILL, "killed", 30, 0)                                     \
    _(CHAOS_KILL_IN_COMMIT, "killed in a commit", 12, 0)               \
    _(CHAOS_KILL_GUEST, "killed while it asks to return", 6, 0)        \
    _(CHAOS_STOP, "stopped", 26, 0)                                    \
    _(CHAOS_STOP_IN_COMMIT, "stopped in a commit", 8, 0)               \
    _(CHAOS_COMMIT, "commit at once", 14, 0)                           \
    _(CHAOS_SLOW, "network slow", 10, 1)                               \
    _(CHAOS_CUT, "network cut, shorter than it takes to notice", 8, 1) \
    _(CHAOS_PART, "network cut, until both halves have noticed", 3, 1) \
    _(CHAOS_GROW, "new rank", 4, 0)

enum chaos_fault {
#define CHAOS_FAULT_ENUM(name_, text_, weight_, on_net_) name_,
    CHAOS_FAULTS(CHAOS_FAULT_ENUM)
#undef CHAOS_FAULT_ENUM
        CHAOS_N_FAULTS
};

enum chaos_place { CHAOS_DOWN, CHAOS_COMING, CHAOS_SERVING };

/* What is known of a rank. */
struct chaos_rank_page {
    _Atomic int has_begun; /* it is no place any more that waits for a new rank */
    _Atomic int place;     /* enum chaos_place */
    _Atomic int life;      /* processes so far */
    _Atomic int pid;
    _Atomic int faults;        /* that others may take for its loss, ever */
    _Atomic int faults_before; /* of these, before this life served */
    _Atomic int done;          /* commits; -1: it does not know yet */
    _Atomic int quiet;         /* it has nothing in flight, for this commit */
    _Atomic int killed;
    _Atomic int64_t kill_ns; /* when last; 0: it has not died, or is whole again */
    _Atomic int64_t restart_ns;
    _Atomic int64_t beat_ns;
    _Atomic(const char *) step;
    char address[CHAOS_ADDRESS];
    /* For those who read why a job has ended. */
    char host[CHAOS_HOST];
    _Atomic int epoch;     /* the last that it was a member of */
    _Atomic uint64_t lost; /* who is lost to it, as it saw last: a bit for each rank */
    char given_up[CHAOS_WHY], not_admitted[CHAOS_WHY]; /* why, the last time */
    /* What its process held when it had settled, and in the end. */
    _Atomic int64_t since_ns, fds[2], mappings[2], resident[2];
};

struct chaos_samples {
    _Atomic int n;
    int64_t ns[CHAOS_SAMPLES];
};

struct chaos_page {
    int size, attn;         /* ranks and attention ranks of the start */
    int room;               /* places behind them: first attention ranks, as many FFN ranks */
    _Atomic int generation; /* commits that are wanted */
    _Atomic int over;       /* 1: no more faults, all are to be whole; 2: the end */
    _Atomic int64_t began_ns;
    _Atomic int failed;
    _Atomic int64_t ops[CHAOS_STATUSES], answers[CHAOS_STATUSES];
    _Atomic int64_t commits[CHAOS_STATUSES], guests[CHAOS_STATUSES];
    _Atomic int64_t served, bytes, lives, given_up;
    _Atomic int last_ops; /* attention ranks that are through with the last operations */
    _Atomic int64_t made[CHAOS_N_FAULTS], kept[CHAOS_N_FAULTS];
    _Atomic uint64_t is_in[16], is_out[16]; /* by generation, the last ones: who said so */
    struct chaos_samples named, committed, whole;
    struct chaos_rank_page ranks[HS_MAX_RANKS];
};

/* One plan's keys and buffers. */
struct chaos_plan {
    stepaf_plan_h plan;
    size_t bytes;
    uint64_t n;            /* operations */
    unsigned char *source; /* by slot and, scattered, peer */
    unsigned char *target; /* by peer and slot */
    stepaf_request_h requests[CHAOS_DEPTH];
    uint64_t numbers[CHAOS_DEPTH];
    stepaf_tensor_t push[HS_MAX_RANKS]; /* of a scattered start */
};

/* A life. */
struct chaos {
    struct hs_job *job;
    struct chaos_page *page;
    struct chaos_rank_page *me;
    struct chaos_plan plans[CHAOS_PLANS];
    unsigned char *answer;
    uint64_t dice, n_ops;
    int life;
    int declared;            /* generation whose key there is; 0: none */
    int named[HS_MAX_RANKS]; /* kills of each rank that this one has noticed */
    bool is_settled;
};

static inline uint64_t chaos_draw(uint64_t *dice, uint64_t n)
{
    *dice = hs_mix(*dice);
    return *dice % n;
}

static inline void chaos_count(_Atomic int64_t *counts, stepaf_status_t status)
{
    atomic_fetch_add(&counts[status > 0 ? 0 : 1 - status], 1);
}

/* How long nothing may happen. Most of it is the library's own time-outs, which are the same in a
 * slow build. */
static inline int64_t chaos_patience_s(void)
{
    return CHAOS_HANG_S * (hs_slow() > 1 ? 2 : 1);
}

static inline int64_t chaos_patience_ns(void)
{
    return chaos_patience_s() * 1000000000LL;
}

static inline int chaos_places(const struct chaos_page *page)
{
    return page->size + page->room;
}

static inline bool chaos_is_attention(const struct chaos_page *page, int rank)
{
    return rank < page->attn || (rank >= page->size && rank < page->size + page->room / 2);
}

/* Attention ranks that have begun. */
static inline int chaos_n_attention(const struct chaos_page *page)
{
    int n = 0;

    for (int r = 0; r < chaos_places(page); r++)
        n += chaos_is_attention(page, r) && atomic_load(&page->ranks[r].has_begun);
    return n;
}

void chaos_sample(struct chaos_samples *samples, int64_t ns);
void chaos_beat(struct chaos *chaos, const char *step);
/* For this life, after a failure has been reported: all are to stop. */
bool chaos_is_over(const struct chaos *chaos);

/* ---- chaos_ops.c: exchanges, and the model of their bytes ---- */

bool chaos_ops_prepare(struct chaos *chaos);
/* An attention rank: some operations, answered and compared; by all that live, or perhaps by
 * some. */
bool chaos_ask(struct chaos *chaos, bool of_all);
/* Until nothing is on its way any more. */
bool chaos_drain(struct chaos *chaos);
/* An FFN rank: what comes within @a timeout_us. *n_p: how many batches. */
bool chaos_serve(struct chaos *chaos, int64_t timeout_us, int *n_p);
/* Whether that rank may be lost to this one. */
bool chaos_may_be_lost(const struct chaos *chaos, int world);

/* ---- chaos_life.c: a rank's process ---- */

int chaos_live(struct hs_job *job, struct chaos_page *page, int life);

/* ---- chaos_page.c: what ranks say of themselves ---- */

int chaos_place(const struct chaos_page *page, int rank);
int chaos_count_serving(const struct chaos_page *page, bool attention, bool ffn);
int chaos_count_begun(const struct chaos_page *page);
bool chaos_all_serve(const struct chaos_page *page);
/* All that serve have done the last commit. */
bool chaos_all_have_committed(const struct chaos_page *page);

/* ---- chaos_cable.c: the network between two hosts ---- */

struct chaos_cable {
    const struct chaos_page *page;
    bool speaks;
    int fd;            /* -1: there is none to cut */
    int64_t mended_ns; /* when it is to be as it was; 0: it is */
    int64_t cut_ns;    /* when it was cut last, for a moment */
    /* Cut in two halves. */
    bool is_parted; /* until all are back */
    bool is_noticed;
    int n_parted;
    int64_t parted_ns, rest_ns;
    int generation;
    uint64_t lesser; /* ranks of the smaller half: a bit for each */
    int lives[HS_MAX_RANKS];
};

bool chaos_cable_open(struct chaos_cable *cable, const struct hs_job *job,
                      const struct chaos_page *page);
/* The host of most of the ranks that serve; NULL: there is one only. */
const char *chaos_cable_larger(const struct chaos_cable *cable);
bool chaos_cable_slow(struct chaos_cable *cable, int64_t us, int64_t span_ns);
bool chaos_cable_cut(struct chaos_cable *cable, int64_t span_ns);
/* Until both halves have noticed, and @a rest_ns more. */
bool chaos_cable_part(struct chaos_cable *cable, struct chaos_page *page, int64_t rest_ns);
/* Mend what is to be mended: @a at_once, but for halves that have not noticed; or @a anyway,
 * without judging them. False: they do not. */
bool chaos_cable_turn(struct chaos_cable *cable, bool at_once, bool anyway);

/* ---- chaos_director.c: the schedule ---- */

void chaos_direct(const struct hs_job *job, struct chaos_page *page);
const char *chaos_fault_name(int fault);

/* ---- chaos_report.c ---- */
/* @a keeper: the rank that was never killed. */
void chaos_report(const struct hs_job *job, struct chaos_page *page, double seconds, int keeper);
/* Where each rank is, and why. */
void chaos_report_ranks(const struct chaos_page *page);

#endif
