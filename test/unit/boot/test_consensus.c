/* SPDX-License-Identifier: Apache-2.0 */
/* The agreement of those that are left, on a network that is played: messages are late, change
 * their order and come twice, ranks die between any two steps, each survivor hears of it at another
 * time, a cut divides the ranks in two, and processes take the places of the dead, of which
 * messages are still on their way. Whatever happens, no two ranks come to different decisions. */
#include <stdlib.h>

#include "boot/consensus/consensus.h"
#include "unit.h"

enum {
    RANKS_MAX = 6,
    LETTERS_MAX = 4096,
    DECISIONS = 2,
    STEPS_MAX = 20000,
    SEEDS = 4000,
    VALUE_MAX = 256,
    SHORTER = 8
};

/* A message on its way, or the news of a death. */
struct queued {
    int from, to;
    uint8_t *data; /* NULL: news that from is lost */
    size_t bytes;
    uint32_t life; /* of from, that the news is about */
};

struct world {
    int size;
    struct stepaf_consensus consensuss[RANKS_MAX];
    bool is_dead[RANKS_MAX];
    int side[RANKS_MAX]; /* of the cut, if there is one */
    bool is_cut;
    bool returns; /* the dead do, by the first decision */
    bool has_returned[RANKS_MAX];
    struct queued queue[LETTERS_MAX];
    int n_letters;
    uint64_t dice;
    int n_late;                                           /* queue that nobody was left to read */
    uint8_t decided[DECISIONS + 1][RANKS_MAX][VALUE_MAX]; /* by whom */
    size_t decided_bytes[DECISIONS + 1][RANKS_MAX];
};

struct place {
    struct world *world;
    int rank;
};

static struct place places[RANKS_MAX];
static int n_with_returned; /* worlds that have somebody who returned at their end */

static uint32_t roll(struct world *world, uint32_t sides)
{
    world->dice = world->dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(world->dice >> 33) % sides;
}

static void post(struct world *world, int from, int to, uint8_t *data, size_t bytes)
{
    if (world->n_letters == LETTERS_MAX) {
        world->n_late++;
        free(data);
        return;
    }
    world->queue[world->n_letters++] =
        (struct queued){from, to, data, bytes, world->consensuss[from].lives[from]};
}

static void send_letter(void *arg, int to, const struct stepaf_consensus_message *message)
{
    struct place *place = arg;
    size_t bytes = 0;
    uint8_t *data = stepaf_consensus_message_pack(message, place->world->size, &bytes);

    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    post(place->world, place->rank, to, data, bytes);
}

static void begin_world(struct world *world, int size, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->size = size;
    world->dice = seed * 2654435761u + 99;
    for (int r = 0; r < size; r++) {
        places[r] = (struct place){world, r};
        CU_ASSERT_FATAL(
            stepaf_consensus_init(&world->consensuss[r], r, size, send_letter, &places[r]));
        stepaf_consensus_next(&world->consensuss[r]);
    }
}

static void end_world(struct world *world)
{
    for (int i = 0; i < world->n_letters; i++)
        free(world->queue[i].data);
    for (int r = 0; r < world->size; r++)
        stepaf_consensus_free(&world->consensuss[r]);
}

/* What all would have by an exchange of all. */
static uint8_t *full_value(const struct world *world, uint32_t number, size_t *bytes_p)
{
    struct stepaf_consensus_blob blobs[RANKS_MAX];
    static uint8_t words[RANKS_MAX][2];

    for (int r = 0; r < world->size; r++) {
        words[r][0] = (uint8_t)r;
        words[r][1] = (uint8_t)number;
        blobs[r] = (struct stepaf_consensus_blob){words[r], 2};
    }
    return stepaf_consensus_value_make(blobs, world->size, bytes_p);
}

/* Note what the rank has come to. */
static void look_at(struct world *world, int rank)
{
    const struct stepaf_consensus *consensus = &world->consensuss[rank];
    uint32_t number = consensus->number;

    if (consensus->state != STEPAF_CONSENSUS_DONE || !consensus->value.data)
        return;
    CU_ASSERT_FATAL(consensus->value.bytes <= VALUE_MAX && number <= DECISIONS);
    world->decided_bytes[number][rank] = consensus->value.bytes;
    memcpy(world->decided[number][rank], consensus->value.data, consensus->value.bytes);
}

/* How many decisions differ from that of another rank before, be it dead or not. What the dead have
 * by an exchange of all nobody has to go by. */
static int n_different(const struct world *world, bool by_boot)
{
    int n = 0;

    for (int number = 1; number <= DECISIONS; number++)
        for (int r = 0; r < world->size; r++)
            for (int other = 0; other < r; other++) {
                size_t bytes = world->decided_bytes[number][r];
                if (!bytes || !world->decided_bytes[number][other] ||
                    (by_boot && (world->is_dead[r] || world->is_dead[other])))
                    continue;
                n += bytes != world->decided_bytes[number][other] ||
                     memcmp(world->decided[number][r], world->decided[number][other], bytes) != 0;
            }
    return n;
}

static void open_one(struct world *world, int rank)
{
    uint8_t words[2] = {(uint8_t)rank, (uint8_t)world->consensuss[rank].number};

    stepaf_consensus_open(&world->consensuss[rank], words, sizeof words);
    look_at(world, rank);
}

/* By the decision that it has come to, the rank admits all whose words are not in it. The first to
 * do so has the processes begin. */
static void admit_dead(struct world *world, const struct stepaf_consensus *consensus)
{
    struct stepaf_consensus_blob blobs[RANKS_MAX];
    bool is_new[RANKS_MAX] = {false};
    uint32_t lives[RANKS_MAX];

    CU_ASSERT_FATAL(stepaf_consensus_value_read(consensus->value.data, consensus->value.bytes,
                                                blobs, world->size));
    for (int r = 0; r < world->size; r++) {
        if (blobs[r].data)
            continue;
        stepaf_consensus_admit(&world->consensuss[consensus->rank], r);
        is_new[r] = !world->has_returned[r];
        world->has_returned[r] = true;
    }
    memcpy(lives, consensus->lives, sizeof lives[0] * (size_t)world->size);
    for (int r = 0; r < world->size; r++) {
        struct stepaf_consensus *other = &world->consensuss[r];
        if (!is_new[r])
            continue;
        stepaf_consensus_free(other);
        world->is_dead[r] = false;
        CU_ASSERT_FATAL(stepaf_consensus_init(other, r, world->size, send_letter, &places[r]));
        memcpy(other->lives, lives, sizeof lives[0] * (size_t)world->size);
        memcpy(other->gone, consensus->gone, sizeof lives[0] * (size_t)world->size);
        CU_ASSERT_FATAL(stepaf_consensus_return(other, consensus->number, consensus->value.data,
                                                consensus->value.bytes));
    }
}

/* A rank goes on by itself: into an exchange that was called for or has failed, or past one that
 * has not. */
static void step_alone(struct world *world, int rank, bool by_boot)
{
    struct stepaf_consensus *consensus = &world->consensuss[rank];
    size_t bytes = 0;

    if (world->is_dead[rank])
        return;
    if (consensus->state == STEPAF_CONSENSUS_DONE && consensus->number < DECISIONS) {
        if (world->returns && consensus->lives[rank] == 1)
            admit_dead(world, consensus);
        stepaf_consensus_next(consensus);
    } else if (consensus->state == STEPAF_CONSENSUS_ELSEWHERE) {
        if (by_boot && !consensus->stays && consensus->number == 1) {
            uint8_t *value = full_value(world, consensus->number, &bytes);
            stepaf_consensus_learn(consensus, value, bytes);
            free(value);
            look_at(world, rank);
        } else {
            open_one(world, rank);
        }
    }
}

static void deliver(struct world *world, int at, bool twice)
{
    struct queued queued = world->queue[at];
    struct stepaf_consensus_message message;
    bool is_apart = world->is_cut && world->side[queued.from] != world->side[queued.to];

    if (!twice) {
        memmove(&world->queue[at], &world->queue[at + 1],
                (size_t)(world->n_letters - at - 1) * sizeof(struct queued));
        world->n_letters--;
    }
    if (!world->is_dead[queued.to] && !queued.data) {
        if (world->consensuss[queued.to].lives[queued.from] == queued.life)
            stepaf_consensus_lose(&world->consensuss[queued.to], queued.from);
    } else if (!world->is_dead[queued.to] && !is_apart) {
        CU_ASSERT_FATAL(
            stepaf_consensus_message_read(queued.data, queued.bytes, world->size, &message));
        stepaf_consensus_take(&world->consensuss[queued.to], queued.from, &message);
    }
    look_at(world, queued.to);
    if (!twice)
        free(queued.data);
}

/* It dies; what it has said may still come, or not. */
static void kill_rank(struct world *world, int rank, bool is_silent)
{
    if (world->is_dead[rank])
        return;
    world->is_dead[rank] = true;
    for (int i = world->n_letters; is_silent && i-- > 0;)
        if (world->queue[i].from == rank && world->queue[i].data && roll(world, 2)) {
            free(world->queue[i].data);
            world->queue[i] = world->queue[--world->n_letters];
        }
    for (int r = 0; r < world->size; r++)
        post(world, rank, r, NULL, 0);
}

static void cut_world(struct world *world)
{
    if (world->is_cut)
        return;
    world->is_cut = true;
    for (int r = 0; r < world->size; r++)
        world->side[r] = (int)roll(world, 2);
    for (int r = 0; r < world->size; r++)
        for (int other = 0; other < world->size; other++)
            if (world->side[r] != world->side[other])
                post(world, r, other, NULL, 0);
}

static bool all_rest(const struct world *world)
{
    for (int r = 0; r < world->size; r++) {
        const struct stepaf_consensus *consensus = &world->consensuss[r];
        if (world->is_dead[r] || consensus->state == STEPAF_CONSENSUS_FAILED)
            continue;
        if (consensus->state != STEPAF_CONSENSUS_DONE || consensus->number < DECISIONS)
            return false;
    }
    return world->n_letters == 0;
}

/* Until nothing moves any more. */
static bool play_out(struct world *world, bool by_boot)
{
    for (int step = 0; step < STEPS_MAX && !all_rest(world); step++) {
        if (world->n_letters && roll(world, 4))
            deliver(world, (int)roll(world, (uint32_t)world->n_letters), false);
        else
            step_alone(world, (int)roll(world, (uint32_t)world->size), by_boot && roll(world, 2));
    }
    return all_rest(world);
}

/* Who has returned does not count: a rank that is still at the first decision has never heard of
 * it. */
static bool is_majority(const struct world *world)
{
    int all = 2 * world->size + 1, there = 0;

    for (int r = 0; r < world->size; r++)
        there += world->is_dead[r] || world->has_returned[r] ? 0 : 2 + (r == 0);
    return 2 * there > all;
}

/* All that live have come to the last decision, and are in it. */
static void check_alive(const struct world *world)
{
    struct stepaf_consensus_blob blobs[RANKS_MAX];

    for (int r = 0; r < world->size; r++) {
        const struct stepaf_consensus *consensus = &world->consensuss[r];
        if (world->is_dead[r])
            continue;
        CU_ASSERT_EQUAL(consensus->state, STEPAF_CONSENSUS_DONE);
        if (consensus->state != STEPAF_CONSENSUS_DONE)
            continue;
        CU_ASSERT_FATAL(stepaf_consensus_value_read(consensus->value.data, consensus->value.bytes,
                                                    blobs, world->size));
        for (int other = 0; other < world->size; other++)
            CU_ASSERT(world->is_dead[other] || blobs[other].data != NULL);
        CU_ASSERT(blobs[r].data && blobs[r].data[0] == r && blobs[r].data[1] == DECISIONS);
    }
}

static int n_seeds(void)
{
    return getenv("TEST_LIGHT") ? SEEDS / SHORTER : SEEDS;
}

/* Up to so many deaths at random moments. */
static void play_deaths(int size, int n_deaths, uint64_t seed, bool by_boot, bool returns)
{
    static struct world world;

    begin_world(&world, size, seed);
    world.returns = returns;
    for (int death = 0; death < n_deaths; death++) {
        int steps = (int)roll(&world, 40);
        for (int i = 0; i < steps; i++) {
            if (world.n_letters && roll(&world, 3))
                deliver(&world, (int)roll(&world, (uint32_t)world.n_letters), roll(&world, 5) == 0);
            else
                step_alone(&world, (int)roll(&world, (uint32_t)size), by_boot && roll(&world, 2));
        }
        kill_rank(&world, (int)roll(&world, (uint32_t)size), roll(&world, 2));
    }
    bool rests = play_out(&world, by_boot);
    CU_ASSERT_EQUAL(n_different(&world, by_boot), 0);
    CU_ASSERT_EQUAL(world.n_late, 0);
    if (is_majority(&world)) {
        CU_ASSERT(rests);
        check_alive(&world);
    }
    for (int r = 0; r < size; r++)
        if (world.has_returned[r] && !world.is_dead[r] && rests) {
            n_with_returned++;
            break;
        }
    if (!rests && is_majority(&world))
        fprintf(stderr, "\n    size %d, deaths %d, seed %llu\n", size, n_deaths,
                (unsigned long long)seed);
    end_world(&world);
}

static void deaths(void)
{
    for (int seed = 0; seed < n_seeds(); seed++)
        play_deaths(2 + seed % 5, seed / 5 % 4, (uint64_t)seed, false, false);
}

static void deaths_in_an_exchange_of_all(void)
{
    for (int seed = 0; seed < n_seeds(); seed++)
        play_deaths(2 + seed % 5, seed / 5 % 4, (uint64_t)seed + SEEDS, true, false);
}

/* The first decision is made without the dead, and those who take their places are in the
 * second. */
static void returns(void)
{
    n_with_returned = 0;
    for (int seed = 0; seed < n_seeds(); seed++)
        play_deaths(3 + seed % 4, 1 + seed / 5 % 3, (uint64_t)seed + 2 * SEEDS, false, true);
    CU_ASSERT(n_with_returned > n_seeds() / 4);
}

/* What the dead have said, and what was said of them, does not hold for who has their place. */
static void old_words(void)
{
    static struct world world;
    uint32_t gone[3] = {0, 0, 0};
    struct stepaf_consensus_message old = {
        .kind = STEPAF_CONSENSUS_CALL, .number = 1, .life = 1, .gone = gone};
    struct stepaf_consensus *first, *second;

    begin_world(&world, 3, 1);
    first = &world.consensuss[0];
    second = &world.consensuss[1];
    open_one(&world, 0);
    open_one(&world, 1);
    kill_rank(&world, 2, false);
    while (world.n_letters)
        deliver(&world, 0, false);
    CU_ASSERT_FATAL(first->state == STEPAF_CONSENSUS_DONE &&
                    second->state == STEPAF_CONSENSUS_DONE);
    CU_ASSERT(stepaf_consensus_has_lost(first, 2));
    stepaf_consensus_admit(first, 2);
    CU_ASSERT_FALSE(stepaf_consensus_has_lost(first, 2));
    gone[2] = 1; /* rank 1 has not come to that decision's end, and says what it knew */
    stepaf_consensus_take(first, 1, &old);
    CU_ASSERT_FALSE(stepaf_consensus_has_lost(first, 2));
    gone[2] = 0;
    while (world.n_letters) /* the answer */
        deliver(&world, 0, false);
    old.life = 1;
    stepaf_consensus_take(first, 2, &old); /* the dead one: it is told so */
    CU_ASSERT_EQUAL(world.n_letters, 1);
    CU_ASSERT_EQUAL(world.queue[0].to, 2);
    /* The new one, to a rank that has not come so far: it is let wait, and nothing is said of
     * it. */
    old.life = 2;
    old.number = 2;
    stepaf_consensus_take(second, 2, &old);
    CU_ASSERT_EQUAL(world.n_letters, 1);
    CU_ASSERT(second->next.is_called);
    gone[0] = 1; /* which nobody believes who may be no member */
    stepaf_consensus_take(second, 2, &old);
    CU_ASSERT_FALSE(stepaf_consensus_has_lost(second, 0));
    gone[0] = 0;
    old.life = 1;
    gone[2] = 2; /* it is lost in its second life, and one hears of that before the return */
    stepaf_consensus_take(second, 0, &old);
    stepaf_consensus_admit(second, 2);
    CU_ASSERT(stepaf_consensus_has_lost(second, 2));
    end_world(&world);
}

/* Each rank, and each two ranks, at each moment of a decision in which messages keep their
 * order. */
static void each_moment(void)
{
    static struct world world;
    enum { MOMENTS = 60 };

    for (int size = 2; size <= 5; size++)
        for (int first = 0; first < size; first++)
            for (int second = 0; second < size; second++)
                for (int moment = 0; moment < MOMENTS; moment++) {
                    begin_world(&world, size, (uint64_t)moment);
                    for (int r = 0; r < size; r++)
                        open_one(&world, r);
                    for (int i = 0; i < moment && world.n_letters; i++)
                        deliver(&world, 0, false);
                    kill_rank(&world, first, moment & 1);
                    for (int i = 0; i < moment / 3 && world.n_letters; i++)
                        deliver(&world, 0, false);
                    kill_rank(&world, second, moment & 2);
                    bool rests = play_out(&world, false);
                    CU_ASSERT_EQUAL(n_different(&world, false), 0);
                    if (is_majority(&world)) {
                        CU_ASSERT(rests);
                        check_alive(&world);
                    }
                    end_world(&world);
                }
}

/* Of two halves that do not hear each other one goes on at most: the larger one, or that of the
 * first rank. */
static void halves(void)
{
    static struct world world;
    int n_gone_on = 0;

    for (int seed = 0; seed < n_seeds(); seed++) {
        int size = 2 + seed % 5, n_done[2] = {0}, n[2] = {0}, weight[2] = {0};
        begin_world(&world, size, (uint64_t)seed);
        int steps = (int)roll(&world, 40);
        for (int i = 0; i < steps; i++) {
            if (world.n_letters && roll(&world, 3))
                deliver(&world, (int)roll(&world, (uint32_t)world.n_letters), false);
            else
                step_alone(&world, (int)roll(&world, (uint32_t)size), false);
        }
        cut_world(&world);
        (void)play_out(&world, false);
        CU_ASSERT_EQUAL(n_different(&world, false), 0);
        for (int r = 0; r < size; r++) {
            const struct stepaf_consensus *consensus = &world.consensuss[r];
            n[world.side[r]]++;
            weight[world.side[r]] += 2 + (r == 0);
            n_done[world.side[r]] +=
                consensus->state == STEPAF_CONSENSUS_DONE && consensus->number == DECISIONS;
        }
        int larger = weight[1] > weight[0];
        CU_ASSERT_EQUAL(n_done[larger], n[larger]);
        n_gone_on += n[!larger] && n_done[larger] == n[larger];
        /* One that had come to the end before the cut was heard of may be in the other half. */
        for (int r = 0; r < size; r++)
            if (world.side[r] != larger && world.consensuss[r].state != STEPAF_CONSENSUS_DONE)
                CU_ASSERT_EQUAL(world.consensuss[r].state, STEPAF_CONSENSUS_FAILED);
        end_world(&world);
    }
    CU_ASSERT(n_gone_on > n_seeds() / 4);
}

/* What does not fit is no message, and no value. */
static void malformed(void)
{
    uint32_t gone[3] = {0, 1, 0};
    uint8_t words[5] = "abcd";
    struct stepaf_consensus_message message = {.kind = STEPAF_CONSENSUS_PROMISE,
                                               .number = 7,
                                               .ballot = 1,
                                               .accepted = 2,
                                               .life = 3,
                                               .gone = gone,
                                               .own = words,
                                               .own_bytes = 4,
                                               .value = words,
                                               .value_bytes = 3},
                                    read;
    struct stepaf_consensus_blob blobs[3] = {{words, 4}, {NULL, 0}, {words, 0}}, seen[3];
    size_t bytes = 0;
    uint8_t *data = stepaf_consensus_message_pack(&message, 3, &bytes);

    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    CU_ASSERT(stepaf_consensus_message_read(data, bytes, 3, &read));
    CU_ASSERT(read.number == 7 && read.accepted == 2 && read.own_bytes == 4 &&
              read.value_bytes == 3 && read.life == 3 && stepaf_consensus_gone_by(&read, 1) == 1);
    for (size_t n = 0; n + 3 < bytes; n++) /* the value ends where the message does */
        CU_ASSERT_FALSE(stepaf_consensus_message_read(data, n, 3, &read));
    CU_ASSERT_FALSE(stepaf_consensus_message_read(data, bytes, 1000, &read));
    data[0] = 99;
    CU_ASSERT_FALSE(stepaf_consensus_message_read(data, bytes, 3, &read));
    free(data);
    data = stepaf_consensus_value_make(blobs, 3, &bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    CU_ASSERT(stepaf_consensus_value_read(data, bytes, seen, 3));
    CU_ASSERT(seen[0].bytes == 4 && !seen[1].data && seen[2].data && seen[2].bytes == 0);
    for (size_t n = 0; n < bytes; n++)
        CU_ASSERT_FALSE(stepaf_consensus_value_read(data, n, seen, 3));
    CU_ASSERT_FALSE(stepaf_consensus_value_read(data, bytes, seen, 2));
    free(data);
}

/* Who had no memory for what an exchange of all has brought does not tell those who ask that it was
 * nothing. */
static void no_memory_to_learn(void)
{
    static const uint32_t gone[3];
    const struct stepaf_consensus_message call = {
        .kind = STEPAF_CONSENSUS_CALL, .number = 1, .life = 1, .gone = gone};
    struct world *world = malloc(sizeof *world);

    CU_ASSERT_PTR_NOT_NULL_FATAL(world);
    begin_world(world, 3, 1);
    stepaf_consensus_learn(&world->consensuss[0], NULL, 0);
    CU_ASSERT(world->consensuss[0].state == STEPAF_CONSENSUS_FAILED);
    CU_ASSERT(world->consensuss[0].is_starved);
    stepaf_consensus_take(&world->consensuss[0], 1, &call);
    CU_ASSERT_EQUAL(world->n_letters, 0);
    end_world(world);
    free(world);
}

/* No leader proposes more than others receive; all fail, and none waits. */
static void too_many_words(void)
{
    static const uint8_t large_words[64];
    struct world *world = malloc(sizeof *world);
    int n_too_large = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(world);
    begin_world(world, 3, 1);
    for (int r = 0; r < 3; r++) {
        world->consensuss[r].value_max = 100;
        stepaf_consensus_open(&world->consensuss[r], large_words, sizeof large_words);
    }
    stepaf_consensus_lose(&world->consensuss[0], 2);
    world->is_dead[2] = true;
    while (world->n_letters)
        deliver(world, 0, false);
    for (int r = 0; r < 2; r++) {
        CU_ASSERT(world->consensuss[r].state == STEPAF_CONSENSUS_FAILED);
        n_too_large += world->consensuss[r].is_too_large;
    }
    CU_ASSERT(n_too_large > 0);
    end_world(world);
    free(world);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"ranks that die", deaths},
        {"too many words", too_many_words},
        {"ranks that die in an exchange of all", deaths_in_an_exchange_of_all},
        {"one and two at each moment", each_moment},
        {"ranks that return", returns},
        {"words of and about the dead", old_words},
        {"two halves", halves},
        {"what is malformed", malformed},
        {"no memory to learn a decision", no_memory_to_learn},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
