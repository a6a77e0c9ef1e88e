/* SPDX-License-Identifier: Apache-2.0 */
/* Members that wait for each other, where things come late, again, in another order, or not at all:
 * all the same, each hears of each gathering what the others hear of it, or that it has failed; and
 * what waits for a rank that takes nothing does not grow. */
#include "gathers.h"
#include "starve.h"

enum { AGAIN = 1000, ALLOCATIONS_MAX = 100 };

static const struct stepaf_member_group rest = {CHANNEL, all_ranks + 1, RANKS - 1};

/* Those whose bits are set, until @a rank knows that @a lost is, or for too long. */
static void pump_until_lost(const struct job *job, unsigned mask, int rank, int lost)
{
    int64_t until_ns = stepaf_monotonic_ns() + LIMIT_MS * 1000000LL;

    do {
        for (int r = 0; r < RANKS; r++)
            if (job->nets[r] && mask & 1u << r)
                stepaf_member_net_pump(job->nets[r]);
        (void)poll(NULL, 0, 1);
    } while (!stepaf_consensus_has_lost(stepaf_member_net_consensus(job->nets[rank]), lost) &&
             stepaf_monotonic_ns() < until_ns);
}

static bool has_come(const struct job *job, int rank)
{
    const struct stepaf_member_net *net = job->nets[0];

    return net->others[rank].said[CHANNEL].stamp == job->nets[rank]->gatherings[CHANNEL].stamp;
}

/* All but the first come, and it has their words. */
static void come_to_first(const struct job *job)
{
    int64_t until_ns = stepaf_monotonic_ns() + LIMIT_MS * 1000000LL;
    bool have_come;

    for (int r = 1; r < RANKS; r++)
        if (job->nets[r])
            come(job, r);
    do {
        have_come = true;
        for (int r = 0; r < RANKS; r++)
            if (job->nets[r])
                stepaf_member_net_pump(job->nets[r]);
        (void)poll(NULL, 0, 1);
        for (int r = 1; r < RANKS; r++)
            have_come = have_come && (!job->nets[r] || has_come(job, r));
    } while (!have_come && stepaf_monotonic_ns() < until_ns);
    CU_ASSERT_TRUE(have_come);
}

static bool take_words(const struct job *job, int from, uint64_t stamp, const char *words)
{
    struct stepaf_pack pack = {0};

    stepaf_pack_u32(&pack, CHANNEL);
    stepaf_pack_u64(&pack, stamp);
    stepaf_pack_bytes(&pack, words, strlen(words));
    bool is_taken = take(job->nets[0], from, STEPAF_CONTROL_WORDS, &pack);
    free(pack.data);
    return is_taken;
}

/* A rank that has not looked when the next gathering fails, and the one after it. */
static void an_early_answer_takes_nothing_away(void)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    come(&job, 0);
    come_to_first(&job);
    CU_ASSERT_EQUAL(look(&job, 0, &whom), STEPAF_OK);
    stepaf_member_net_pump(job.nets[1]);
    CU_ASSERT_EQUAL(look(&job, 1, &whom), STEPAF_OK);
    lose_net(&job, 3);
    pump_until_lost(&job, 1, 0, 3);
    for (int i = 0; i < 3; i++) {
        come(&job, 0);
        CU_ASSERT_EQUAL(look(&job, 0, &whom), STEPAF_ERR_PEER_LOST);
        CU_ASSERT_EQUAL(whom, 3);
    }
    CU_ASSERT_EQUAL(await_rank(&job, 2, &whom), STEPAF_OK);
    check_words(job.nets[2]);
    for (int i = 0; i < 4; i++)
        for (int r = 1; r < 3; r++) {
            come(&job, r);
            CU_ASSERT_EQUAL(await_rank(&job, r, &whom), STEPAF_ERR_PEER_LOST);
            CU_ASSERT_EQUAL(whom, 3);
        }
    end_job(&job);
}

static void lose_first(const struct job *job)
{
    static const uint8_t is_member[RANKS] = {0, 1, 1, 1};

    for (int r = 1; r < RANKS; r++) {
        stepaf_member_net_lose(job->nets[r], 0, "it does not answer");
        stepaf_member_net_set_members(job->nets[r], is_member);
    }
}

static stepaf_status_t await_rest(const struct job *job, int rank)
{
    int64_t until_ns = stepaf_monotonic_ns() + LIMIT_MS * 1000000LL;
    stepaf_status_t status;
    int whom;

    do {
        for (int r = 0; r < RANKS; r++)
            stepaf_member_net_pump(job->nets[r]);
        (void)poll(NULL, 0, 1);
        status = stepaf_member_gather_look(job->nets[rank], &rest, &whom);
    } while (status == STEPAF_INPROGRESS && stepaf_monotonic_ns() < until_ns);
    return status;
}

/* It was stopped, and says what has come of a gathering that the others have left. */
static void a_former_first_says_nothing(void)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    come(&job, 0);
    come_to_first(&job);
    lose_first(&job);
    for (int i = 0; i < 2; i++) {
        for (int r = 1; r < RANKS; r++)
            come_to(&job, r, &rest, EPOCH + 1);
        CU_ASSERT_EQUAL(await_rest(&job, 1), STEPAF_OK);
        CU_ASSERT_EQUAL(look(&job, 0, &whom), STEPAF_OK);
        for (int r = 2; r < RANKS; r++)
            CU_ASSERT_EQUAL(await_rest(&job, r), STEPAF_OK);
    }
    end_job(&job);
}

/* The n-th allocation of the first fails when it makes the answer, or says it. What they come to;
 * STEPAF_INPROGRESS: it has not struck. */
static stepaf_status_t starve_answer(uint64_t nth)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    come(&job, 0);
    come_to_first(&job);
    starve_begin(nth, false);
    stepaf_status_t first = look(&job, 0, &whom);
    bool has_struck = starve_has_struck();
    starve_end();
    for (int r = 1; r < RANKS; r++) {
        stepaf_status_t status = await_rank(&job, r, &whom);
        CU_ASSERT_TRUE(status == first ||
                       (first == STEPAF_OK && status == STEPAF_ERR_PEER_LOST && whom == 0));
    }
    if (first == STEPAF_ERR_NO_MEMORY)
        gather_once(&job); /* and the next is the next at all of them */
    end_job(&job);
    return has_struck ? first : STEPAF_INPROGRESS;
}

static void no_memory_is_a_failure_for_all(void)
{
    stepaf_status_t status = STEPAF_OK;
    bool has_failed = false;

    for (uint64_t nth = 1; nth < ALLOCATIONS_MAX && status != STEPAF_INPROGRESS; nth++) {
        status = starve_answer(nth);
        has_failed = has_failed || status == STEPAF_ERR_NO_MEMORY;
    }
    CU_ASSERT_TRUE(has_failed);
    CU_ASSERT_EQUAL(status, STEPAF_INPROGRESS);
}

/* The first has none for what one says. */
static void words_for_which_there_is_no_memory(void)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    starve_begin(2, false); /* the first is the frame's */
    CU_ASSERT_TRUE(take_words(&job, 1, (uint64_t)EPOCH << 32 | 1, "words"));
    CU_ASSERT_TRUE(starve_has_struck());
    starve_end();
    for (int r = 0; r < RANKS; r++)
        come(&job, r);
    for (int r = 0; r < RANKS; r++)
        CU_ASSERT_EQUAL(await_rank(&job, r, &whom), STEPAF_ERR_NO_MEMORY);
    gather_once(&job);
    end_job(&job);
}

/* Another has none for the answer: it asks again. */
static stepaf_status_t starve_hearing(uint64_t nth)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    come(&job, 0);
    come_to_first(&job);
    CU_ASSERT_EQUAL(look(&job, 0, &whom), STEPAF_OK);
    starve_begin(nth, false);
    stepaf_member_net_pump(job.nets[2]);
    starve_end();
    stepaf_status_t status = await_rank(&job, 2, &whom);
    if (status == STEPAF_ERR_NO_MEMORY) {
        come(&job, 2);
        CU_ASSERT_EQUAL(await_rank(&job, 2, &whom), STEPAF_OK);
        check_words(job.nets[2]);
        for (int r = 1; r < RANKS; r++)
            CU_ASSERT_EQUAL(await_rank(&job, r, &whom), STEPAF_OK);
        gather_once(&job);
    }
    end_job(&job);
    return status;
}

static void an_answer_is_said_again(void)
{
    bool has_failed = false;
    stepaf_status_t status;
    uint64_t nth = 1;

    do {
        status = starve_hearing(nth);
        CU_ASSERT_NOT_EQUAL(status, STEPAF_INPROGRESS);
        has_failed = has_failed || status == STEPAF_ERR_NO_MEMORY;
    } while (status != STEPAF_OK && ++nth < ALLOCATIONS_MAX);
    CU_ASSERT_TRUE(has_failed);
}

/* To the first a rank is lost that lives: before it comes, or after. */
static void who_is_given_up_hears_it(void)
{
    struct job job;
    int whom = -1;

    for (int is_late = 0; is_late < 2; is_late++) {
        begin_job(&job);
        if (is_late) {
            come_to_first(&job);
            stepaf_member_net_lose(job.nets[0], 2, "its link has failed");
            come(&job, 0);
            for (int r = 0; r < RANKS; r++)
                CU_ASSERT_EQUAL(await_rank(&job, r, &whom), STEPAF_OK);
            check_words(job.nets[2]);
        }
        stepaf_member_net_lose(job.nets[0], 2, "its link has failed");
        for (int r = 0; r < RANKS; r++)
            come(&job, r);
        for (int r = 0; r < RANKS; r++) {
            CU_ASSERT_EQUAL(await_rank(&job, r, &whom), STEPAF_ERR_PEER_LOST);
            CU_ASSERT_EQUAL(whom, 2);
        }
        CU_ASSERT_TRUE(stepaf_member_net_consensus(job.nets[2])->is_out);
        end_job(&job);
    }
}

/* And so does the first, which says so to all. */
static void a_first_that_is_given_up_says_so(void)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    gather_once(&job);
    stepaf_member_net_lose(job.nets[1], 0, "its link has failed");
    for (int i = 0; i < 2; i++) {
        for (int r = 0; r < RANKS; r++)
            come(&job, r);
        CU_ASSERT_EQUAL(look(&job, 1, &whom), STEPAF_ERR_PEER_LOST);
        for (int r = 0; r < RANKS; r++) {
            CU_ASSERT_EQUAL(await_rank(&job, r, &whom), STEPAF_ERR_PEER_LOST);
            CU_ASSERT_EQUAL(whom, 0);
        }
    }
    end_job(&job);
}

static void words_never_go_back(void)
{
    uint64_t stamp = (uint64_t)EPOCH << 32 | 1;
    struct job job;
    int whom = -1;

    begin_job(&job);
    CU_ASSERT_FALSE(take_words(&job, 1, 0, ""));
    for (uint64_t i = 0; i < 3; i++) {
        come(&job, 0);
        CU_ASSERT_TRUE(take_words(&job, 1, stamp + i, "of now"));
        CU_ASSERT_TRUE(take_words(&job, 1, stamp + i, "again"));
        CU_ASSERT_TRUE(take_words(&job, 1, stamp + i - 1, "of before"));
        CU_ASSERT_TRUE(take_words(&job, 2, stamp + i, ""));
        CU_ASSERT_EQUAL(look(&job, 0, &whom), STEPAF_INPROGRESS);
        CU_ASSERT_EQUAL(whom, 3);
        CU_ASSERT_TRUE(take_words(&job, 3, stamp + i, ""));
        CU_ASSERT_EQUAL(look(&job, 0, &whom), STEPAF_OK);
        const struct stepaf_consensus_blob *value =
            stepaf_member_gather_value(job.nets[0], CHANNEL);
        CU_ASSERT_PTR_NOT_NULL(memmem(value->data, value->bytes, "of now", 6));
    }
    end_job(&job);
}

static unsigned count_queued(const struct stepaf_member_net *net, int rank)
{
    unsigned n = 0;

    for (const struct member_queued *queued = net->others[rank].queue; queued;
         queued = queued->next)
        n++;
    return n;
}

/* One calls again and again, and the first does not even take its connection. */
static void waiting_for_a_stopped_first_takes_no_more_memory(void)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    stepaf_member_net_lose(job.nets[1], 3, "it has ended");
    for (int i = 0; i < AGAIN; i++) {
        come(&job, 1);
        CU_ASSERT_EQUAL(look(&job, 1, &whom), STEPAF_INPROGRESS);
        if (i % 100 == 0)
            stepaf_member_net_pump(job.nets[1]);
    }
    CU_ASSERT_EQUAL(count_queued(job.nets[1], 0),
                    1); /* its words; who is lost is said when it can be */
    end_job(&job);
}

/* There are connections, over which nobody takes anything, and one rank does not come. */
static void nothing_is_said_twice(void)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    gather_once(&job);
    uint64_t n_by_one = stepaf_member_net_way(job.nets[1], 0)->seal_out.n;
    uint64_t n_by_first = stepaf_member_net_way(job.nets[0], 1)->seal_out.n;
    come(&job, 0);
    come(&job, 1);
    stepaf_member_net_pump(job.nets[0]);
    for (int i = 0; i < AGAIN; i++) {
        come(&job, 1);
        CU_ASSERT_EQUAL(look(&job, 1, &whom), STEPAF_INPROGRESS);
        CU_ASSERT_EQUAL(look(&job, 0, &whom), STEPAF_INPROGRESS);
        stepaf_member_gather_hint(job.nets[0], &group, whom);
    }
    CU_ASSERT_EQUAL(stepaf_member_net_way(job.nets[1], 0)->seal_out.n, n_by_one + 1);
    CU_ASSERT_EQUAL(stepaf_member_net_way(job.nets[0], 1)->seal_out.n, n_by_first + 1);
    end_job(&job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"an early answer takes nothing away", an_early_answer_takes_nothing_away},
        {"a former first says nothing", a_former_first_says_nothing},
        {"no memory is a failure for all", no_memory_is_a_failure_for_all},
        {"words for which there is no memory", words_for_which_there_is_no_memory},
        {"an answer is said again", an_answer_is_said_again},
        {"who is given up hears it", who_is_given_up_hears_it},
        {"a first that is given up says so", a_first_that_is_given_up_says_so},
        {"words never go back", words_never_go_back},
        {"waiting for a stopped first takes no more memory",
         waiting_for_a_stopped_first_takes_no_more_memory},
        {"nothing is said twice", nothing_is_said_twice},
        CU_TEST_INFO_NULL,
    };
    setenv("STEPAF_NET_IF", "lo", 1);
    return unit_run(tests);
}
