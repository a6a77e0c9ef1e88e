/* SPDX-License-Identifier: Apache-2.0 */
/* The members' decisions in many small worlds of random events: one decision after the other, ranks
 * that die at any moment, processes that take their places by a decision and are told late or never,
 * links that fail between two that live, at one end or at both, messages that are late, out of order
 * or come twice. All that come to a decision come to the same one, and to the same lives and members;
 * where ranks only die, nobody waits in vain. TEST_WORLDS: how many of each kind, the same from the
 * first on. */
#include <stddef.h>
#include <stdlib.h>

#include "boot/consensus/consensus.h"
#include "unit.h"

enum {
    RANKS_MAX = 7,
    DECISIONS = 7,
    QUEUED_MAX = 60000,
    VALUE_MAX = 512,
    WORLDS = 2500, /* of each kind */
    STEPS_MAX = 400000,
    EVENTS_MAX = 5,
    SHORTER = 8,
    LOOKS_MAX = 5000, /* at what cannot be read yet */
    IDLE_STEPS = 600  /* after which nothing moves by itself any more */
};

/* What worlds differ in. */
enum { LINKS_FAIL = 1, OUT_OF_ORDER = 2, COMES_TWICE = 4, NOBODY_RETURNS = 8 };

/* A message on its way, or the news of a death. */
struct queued {
    int from, to;
    uint8_t *data; /* NULL: news that from is lost */
    size_t bytes;
    uint32_t life; /* of from, when it was said */
    int n_looks;
};

/* What all have come to, as the first to come there has it. */
struct outcome {
    bool is_known;
    uint8_t value[VALUE_MAX];
    size_t bytes;
    uint32_t lives[RANKS_MAX];
    uint8_t is_member[RANKS_MAX];
};

static struct world {
    int size, n_queued;
    unsigned kind;
    uint64_t dice;
    struct stepaf_consensus ranks[RANKS_MAX];
    bool is_dead[RANKS_MAX];
    bool has_adopted[RANKS_MAX]; /* the last decision */
    bool is_wanted[RANKS_MAX];   /* a process asks for the place */
    uint32_t process[RANKS_MAX]; /* the life that runs, or ran last */
    struct outcome outcomes[DECISIONS + 1];
    struct queued queue[QUEUED_MAX];
    int n_different; /* outcomes */
} world;

static int places[RANKS_MAX];
static long n_returned, n_at_end; /* in all worlds: processes, and worlds that go on to the end */

static uint32_t roll(uint32_t sides)
{
    world.dice = world.dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(world.dice >> 33) % sides;
}

static void post(struct queued queued)
{
    CU_ASSERT_FATAL(world.n_queued < QUEUED_MAX);
    world.queue[world.n_queued++] = queued;
}

static void post_loss(int from, int to)
{
    post((struct queued){.from = from, .to = to, .life = world.process[from]});
}

static void send_late(void *arg, int to, const struct stepaf_consensus_message *message)
{
    struct queued queued = {.from = *(int *)arg, .to = to};

    CU_ASSERT_FATAL(to >= 0 && to < world.size);
    queued.life = world.ranks[queued.from].lives[queued.from];
    queued.data = stepaf_consensus_message_pack(message, world.size, &queued.bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(queued.data);
    post(queued);
}

static void kill_rank(int rank)
{
    if (world.is_dead[rank])
        return;
    world.is_dead[rank] = true;
    for (int r = 0; r < world.size; r++)
        if (r != rank)
            post_loss(rank, r);
    world.is_wanted[rank] = !(world.kind & NOBODY_RETURNS) && roll(2);
}

/* ---- what a commit makes of a decision ---- */

static void compare_value(int rank)
{
    const struct stepaf_consensus *consensus = &world.ranks[rank];
    struct outcome *outcome = &world.outcomes[consensus->number];

    if (consensus->state != STEPAF_CONSENSUS_DONE || !consensus->value.data)
        return;
    CU_ASSERT_FATAL(consensus->value.bytes <= VALUE_MAX);
    if (!outcome->bytes) {
        outcome->bytes = consensus->value.bytes;
        memcpy(outcome->value, consensus->value.data, outcome->bytes);
    }
    world.n_different += outcome->bytes != consensus->value.bytes ||
                         memcmp(outcome->value, consensus->value.data, outcome->bytes) != 0;
}

static void compare_members(const struct stepaf_consensus *consensus, const uint8_t *is_member)
{
    struct outcome *outcome = &world.outcomes[consensus->number];
    size_t size = (size_t)world.size;

    if (!outcome->is_known) {
        outcome->is_known = true;
        memcpy(outcome->lives, consensus->lives, size * sizeof outcome->lives[0]);
        memcpy(outcome->is_member, is_member, size);
    }
    world.n_different +=
        memcmp(outcome->lives, consensus->lives, size * sizeof outcome->lives[0]) != 0 ||
        memcmp(outcome->is_member, is_member, size) != 0;
}

/* A member tells the process that has been admitted. */
static void begin_process(int rank, const struct stepaf_consensus *teller)
{
    struct stepaf_consensus *consensus = &world.ranks[rank];
    size_t size = (size_t)world.size;

    stepaf_consensus_free(consensus);
    CU_ASSERT_FATAL(stepaf_consensus_init(consensus, rank, world.size, send_late, &places[rank]));
    memcpy(consensus->lives, teller->lives, size * sizeof *consensus->lives);
    memcpy(consensus->gone, teller->gone, size * sizeof *consensus->gone);
    memcpy(consensus->is_member, teller->is_member, size * sizeof *consensus->is_member);
    world.is_dead[rank] = world.is_wanted[rank] = world.has_adopted[rank] = false;
    world.process[rank] = teller->lives[rank];
    if (stepaf_consensus_has_lost(consensus, rank))
        consensus->state = STEPAF_CONSENSUS_FAILED;
    else
        CU_ASSERT_FATAL(stepaf_consensus_return(consensus, teller->number, teller->value.data,
                                                teller->value.bytes));
    n_returned++;
}

/* It may be told, now or by another member, or is lost since nobody tells it in time. */
static void tell_admitted(int rank, const struct stepaf_consensus *teller)
{
    if (world.process[rank] >= teller->lives[rank] || !world.is_dead[rank])
        return;
    if (roll(3)) {
        begin_process(rank, teller);
    } else if (roll(2)) {
        world.process[rank] = teller->lives[rank];
        for (int r = 0; r < world.size; r++)
            if (r != rank)
                post_loss(rank, r);
    }
}

/* Words are one byte for each rank that is to be admitted. */
static void adopt(int rank)
{
    struct stepaf_consensus *consensus = &world.ranks[rank];
    struct stepaf_consensus_blob words[RANKS_MAX];
    uint8_t is_member[RANKS_MAX], is_admitted[RANKS_MAX] = {0};

    CU_ASSERT_FATAL(stepaf_consensus_value_read(consensus->value.data, consensus->value.bytes,
                                                words, world.size));
    bool has_returned = !words[rank].data; /* by this one: it has been told what follows */
    for (int r = 0; r < world.size; r++)
        for (int by = 0; by < world.size; by++)
            is_admitted[r] |= !words[r].data && words[by].data && words[by].data[r];
    for (int r = 0; r < world.size; r++) {
        is_member[r] = words[r].data || is_admitted[r];
        if (is_admitted[r] && !has_returned)
            stepaf_consensus_admit(consensus, r);
    }
    stepaf_consensus_set_members(consensus, is_member);
    stepaf_consensus_set_new(consensus, is_admitted);
    compare_members(consensus, is_member);
    for (int r = 0; r < world.size; r++)
        if (is_admitted[r] && !has_returned)
            tell_admitted(r, consensus);
    world.has_adopted[rank] = true;
}

/* Whether all that go on have come to the decision: then it need not be kept. */
static bool have_all(uint32_t number)
{
    for (int r = 0; r < world.size; r++) {
        const struct stepaf_consensus *consensus = &world.ranks[r];
        bool has = consensus->number > number ||
                   (consensus->number == number && consensus->state == STEPAF_CONSENSUS_DONE);
        if (!world.is_dead[r] && consensus->state != STEPAF_CONSENSUS_FAILED && !has)
            return false;
    }
    return true;
}

static void open_next(int rank)
{
    struct stepaf_consensus *consensus = &world.ranks[rank];
    uint8_t words[RANKS_MAX];

    for (int r = 0; r < world.size; r++)
        words[r] = stepaf_consensus_has_lost(consensus, r) && world.is_wanted[r] && roll(2);
    stepaf_consensus_open(consensus, words, (size_t)world.size);
}

/* What a rank does by itself. */
static void step_alone(int rank)
{
    struct stepaf_consensus *consensus = &world.ranks[rank];

    if (world.is_dead[rank])
        return;
    if (consensus->state == STEPAF_CONSENSUS_FAILED) {
        kill_rank(rank); /* its process ends */
    } else if (consensus->state == STEPAF_CONSENSUS_ELSEWHERE) {
        open_next(rank);
    } else if (consensus->state == STEPAF_CONSENSUS_DONE && !world.has_adopted[rank]) {
        bool can_forget = have_all(consensus->number) && roll(2);
        adopt(rank);
        if (can_forget)
            stepaf_consensus_forget(consensus);
    } else if (consensus->state == STEPAF_CONSENSUS_DONE && consensus->number < DECISIONS) {
        stepaf_consensus_next(consensus);
        world.has_adopted[rank] = false;
    }
    compare_value(rank);
}

/* ---- what is on its way ---- */

/* What is said to a process that has been admitted lies until it is there; so does the news that it
 * is lost, until one has heard of it. */
static bool is_early(const struct queued *queued)
{
    const struct stepaf_consensus *to = &world.ranks[queued->to];
    const struct stepaf_consensus *from = &world.ranks[queued->from];

    if (queued->n_looks >= LOOKS_MAX)
        return false;
    if (world.is_dead[queued->to])
        return queued->data && world.process[queued->to] < from->lives[queued->to] &&
               !world.is_dead[queued->from];
    return !queued->data && to->lives[queued->from] < queued->life &&
           to->state != STEPAF_CONSENSUS_FAILED;
}

static void read_queued(const struct queued *queued)
{
    struct stepaf_consensus *to = &world.ranks[queued->to];
    struct stepaf_consensus_message message;

    if (world.is_dead[queued->to])
        return;
    if (!queued->data) {
        if (to->lives[queued->from] == queued->life)
            stepaf_consensus_lose(to, queued->from);
    } else {
        CU_ASSERT_FATAL(
            stepaf_consensus_message_read(queued->data, queued->bytes, world.size, &message));
        CU_ASSERT(stepaf_consensus_take(to, queued->from, &message));
    }
    compare_value(queued->to);
}

static void deliver_one(void)
{
    int at = (int)roll((uint32_t)world.n_queued), first = 0;
    bool in_order = !(world.kind & OUT_OF_ORDER);

    while (in_order && first < at &&
           (world.queue[first].from != world.queue[at].from ||
            world.queue[first].to != world.queue[at].to))
        first++;
    at = in_order ? first : at;
    struct queued queued = world.queue[at];
    bool is_twice = (world.kind & COMES_TWICE) && queued.data && !roll(8);
    if (!is_twice) {
        world.n_queued--;
        memmove(&world.queue[at], &world.queue[at + 1],
                (size_t)(world.n_queued - at) * sizeof queued);
    }
    if (!is_twice && is_early(&queued)) {
        queued.n_looks++;
        post(queued);
        return;
    }
    read_queued(&queued);
    if (!is_twice)
        free(queued.data);
}

/* ---- worlds ---- */

static void fail_link(void)
{
    int one = (int)roll((uint32_t)world.size), other = (int)roll((uint32_t)world.size);

    if (one == other || world.is_dead[one] || world.is_dead[other])
        return;
    stepaf_consensus_lose(&world.ranks[one], other);
    if (roll(2))
        stepaf_consensus_lose(&world.ranks[other], one);
    compare_value(one);
    compare_value(other);
}

static void strike(void)
{
    if ((world.kind & LINKS_FAIL) && roll(2))
        fail_link();
    else
        kill_rank((int)roll((uint32_t)world.size));
}

/* Who is not there, and is not lost to somebody, is so in time: it cannot be called. */
static bool lose_absent(void)
{
    bool is_any = false;

    for (int rank = 0; rank < world.size; rank++)
        for (int r = 0; r < world.size; r++) {
            const struct stepaf_consensus *consensus = &world.ranks[r];
            if (r == rank || !world.is_dead[rank] || world.is_dead[r] ||
                consensus->state == STEPAF_CONSENSUS_FAILED ||
                stepaf_consensus_has_lost(consensus, rank))
                continue;
            post((struct queued){.from = rank, .to = r, .life = consensus->lives[rank]});
            is_any = true;
        }
    return is_any;
}

static bool rest_all(void)
{
    for (int r = 0; r < world.size; r++) {
        const struct stepaf_consensus *consensus = &world.ranks[r];
        if (!world.is_dead[r] && (consensus->state != STEPAF_CONSENSUS_DONE ||
                                  consensus->number < DECISIONS || !world.has_adopted[r]))
            return false;
    }
    return true;
}

static void begin_world(unsigned kind, uint64_t seed)
{
    memset(&world, 0, offsetof(struct world, queue));
    world.n_different = 0;
    world.kind = kind;
    world.dice = seed * 2654435761u + 12345;
    (void)roll(2);
    world.size = 2 + (int)roll(RANKS_MAX - 1);
    for (int r = 0; r < world.size; r++) {
        places[r] = r;
        world.process[r] = 1;
        CU_ASSERT_FATAL(
            stepaf_consensus_init(&world.ranks[r], r, world.size, send_late, &places[r]));
        stepaf_consensus_next(&world.ranks[r]);
    }
}

static void end_world(void)
{
    for (int i = 0; i < world.n_queued; i++)
        free(world.queue[i].data);
    for (int r = 0; r < world.size; r++) {
        if (!world.is_dead[r] && world.ranks[r].number == DECISIONS) {
            n_at_end++;
            break;
        }
    }
    for (int r = 0; r < world.size; r++)
        stepaf_consensus_free(&world.ranks[r]);
}

/* True: somebody waits, though nothing is on its way any more. */
static bool play_world(unsigned kind, uint64_t seed)
{
    begin_world(kind, seed);
    int n_events = (int)roll(EVENTS_MAX + 1), until_next = (int)roll(60), idle = 0;
    for (int step = 0; step < STEPS_MAX && !rest_all() && idle <= IDLE_STEPS; step++) {
        if (n_events && !until_next--) {
            n_events--;
            until_next = (int)roll(200);
            strike();
        }
        idle = world.n_queued || n_events ? 0 : idle + 1;
        if (world.n_queued && roll(4))
            deliver_one();
        else
            step_alone((int)roll((uint32_t)world.size));
        if (idle == IDLE_STEPS && lose_absent())
            idle = 0;
    }
    bool waits = !rest_all();
    CU_ASSERT_EQUAL(world.n_different, 0);
    if (world.n_different || (waits && !(kind & LINKS_FAIL)))
        fprintf(stderr, "\n    kind %u, seed %llu: %s\n", kind, (unsigned long long)seed,
                waits ? "somebody waits" : "outcomes differ");
    end_world();
    return waits;
}

static long n_worlds(void)
{
    const char *more = getenv("TEST_WORLDS");

    return more ? atol(more) : getenv("TEST_LIGHT") ? WORLDS / SHORTER : WORLDS;
}

/* In how many somebody waits. */
static long play_worlds(unsigned kind)
{
    long n = n_worlds(), n_waits = 0;

    n_returned = n_at_end = 0;
    for (long seed = 0; seed < n; seed++)
        n_waits += play_world(kind, (uint64_t)seed);
    CU_ASSERT(n_at_end > n / 2);
    CU_ASSERT((kind & NOBODY_RETURNS) || n_returned > n / 4);
    if (getenv("TEST_WORLDS"))
        fprintf(stderr, "\n    kind %u: %ld worlds, %ld to the end, %ld returned, %ld wait\n", kind,
                n, n_at_end, n_returned, n_waits);
    return n_waits;
}

static void only_deaths(void)
{
    static const unsigned kinds[] = {0, NOBODY_RETURNS, OUT_OF_ORDER | COMES_TWICE,
                                     NOBODY_RETURNS | OUT_OF_ORDER | COMES_TWICE};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        CU_ASSERT_EQUAL(play_worlds(kinds[i]), 0);
}

/* Of two that have lost each other, either may be given up first, at one rank the one and at another
 * the other. That somebody waits until a process ends is rare all the same. */
static void links_that_fail(void)
{
    static const unsigned kinds[] = {LINKS_FAIL, LINKS_FAIL | NOBODY_RETURNS,
                                     LINKS_FAIL | OUT_OF_ORDER | COMES_TWICE,
                                     LINKS_FAIL | NOBODY_RETURNS | OUT_OF_ORDER | COMES_TWICE};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        CU_ASSERT(play_worlds(kinds[i]) <= n_worlds() / 200);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"ranks that die and return", only_deaths},
        {"links that fail, too", links_that_fail},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
