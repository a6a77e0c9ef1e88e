/* SPDX-License-Identifier: Apache-2.0 */
/* Members that wait for each other beside the bootstrap, without contexts: who is awaited is named,
 * late words and second calls change nothing, a loss is heard by all, and what does not fit is
 * refused. */
#include "gathers.h"

static void all_hear_all(void)
{
    struct job job;

    begin_job(&job);
    for (int i = 0; i < 3; i++)
        gather_once(&job);
    end_job(&job);
}

/* Whom the first waits for the others hear; whoever has given up waiting goes on with the same
 * one. */
static void who_is_awaited_is_named(void)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    for (int r = 0; r < RANKS; r++)
        if (r != 2)
            come(&job, r);
    for (int i = 0; i < 200 && (whom != 2 || i < 20); i++) {
        for (int r = 0; r < RANKS; r++)
            stepaf_member_net_pump(job.nets[r]);
        CU_ASSERT_EQUAL(look(&job, 0, &whom), STEPAF_INPROGRESS);
        stepaf_member_gather_hint(job.nets[0], &group, whom);
        CU_ASSERT_EQUAL(look(&job, 3, &whom), STEPAF_INPROGRESS);
        (void)poll(NULL, 0, 1);
    }
    CU_ASSERT_EQUAL(whom, 2);
    come(&job, 3); /* again */
    come(&job, 2);
    for (int r = 0; r < RANKS; r++)
        CU_ASSERT_EQUAL(await_rank(&job, r, &whom), STEPAF_OK);
    gather_once(&job); /* and the next is the next at all of them */
    end_job(&job);
}

/* The first is told by one who knows, and tells the others. */
static void a_loss_is_heard_by_all(void)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    lose_net(&job, 2);
    stepaf_member_net_lose(job.nets[3], 2, "it has ended");
    for (int r = 0; r < RANKS; r++)
        if (r != 2)
            come(&job, r);
    (void)look(&job, 3, &whom);
    for (int r = 0; r < RANKS; r++)
        if (r != 2) {
            CU_ASSERT_EQUAL(await_rank(&job, r, &whom), STEPAF_ERR_PEER_LOST);
            CU_ASSERT_EQUAL(whom, 2);
            CU_ASSERT_TRUE(stepaf_consensus_has_lost(stepaf_member_net_consensus(job.nets[r]), 2));
        }
    end_job(&job);
}

static void the_first_is_lost(void)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    lose_net(&job, 0);
    for (int r = 1; r < RANKS; r++)
        come(&job, r);
    for (int r = 1; r < RANKS; r++) {
        CU_ASSERT_EQUAL(await_rank(&job, r, &whom), STEPAF_ERR_PEER_LOST);
        CU_ASSERT_EQUAL(whom, 0);
    }
    end_job(&job);
}

static void what_does_not_fit_is_refused(void)
{
    static const uint32_t types[] = {STEPAF_CONTROL_WORDS, STEPAF_CONTROL_ALL_WORDS};
    struct job job;

    begin_job(&job);
    come(&job, 0);
    come(&job, 1);
    for (int t = 0; t < 2; t++) {
        struct stepaf_pack pack = {0};
        stepaf_pack_u32(&pack, STEPAF_MEMBER_GATHERINGS); /* no such channel */
        stepaf_pack_u64(&pack, 1);
        stepaf_pack_u32(&pack, 0);
        stepaf_pack_u32(&pack, 0);
        CU_ASSERT_FALSE(take(job.nets[1], 0, types[t], &pack));
        pack.data[0] = CHANNEL;
        CU_ASSERT_TRUE(take(job.nets[1], 0, types[t], &pack));
        pack.bytes = 7; /* cut */
        CU_ASSERT_FALSE(take(job.nets[1], 0, types[t], &pack));
        free(pack.data);
    }
    for (uint32_t i = 0; i < 2; i++) { /* a status, or a rank, that there is not */
        struct stepaf_pack pack = {0};
        stepaf_pack_u32(&pack, CHANNEL);
        stepaf_pack_u64(&pack, 2);
        stepaf_pack_u32(&pack, i ? (uint32_t)STEPAF_ERR_PEER_LOST : (uint32_t)STEPAF_ERR_BOOT);
        stepaf_pack_u32(&pack, i ? RANKS : 0);
        CU_ASSERT_FALSE(take(job.nets[1], 0, STEPAF_CONTROL_ALL_WORDS, &pack));
        free(pack.data);
    }
    end_job(&job);
}

/* What comes of an epoch before, or from who is not the first, means nothing. */
static void what_is_late_means_nothing(void)
{
    struct job job;
    int whom = -1;

    begin_job(&job);
    for (int i = 0; i < 2; i++) {
        struct stepaf_pack pack = {0};
        stepaf_pack_u32(&pack, CHANNEL);
        stepaf_pack_u64(&pack, (uint64_t)(i ? EPOCH : EPOCH - 1) << 32 | 1);
        stepaf_pack_u32(&pack, STEPAF_OK);
        stepaf_pack_u32(&pack, 0);
        CU_ASSERT_TRUE(take(job.nets[1], i ? 2 : 0, STEPAF_CONTROL_ALL_WORDS, &pack));
        free(pack.data);
        come(&job, 1);
        CU_ASSERT_EQUAL(look(&job, 1, &whom), STEPAF_INPROGRESS);
    }
    end_job(&job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"all hear all", all_hear_all},
        {"who is awaited is named", who_is_awaited_is_named},
        {"a loss is heard by all", a_loss_is_heard_by_all},
        {"the first is lost", the_first_is_lost},
        {"what does not fit is refused", what_does_not_fit_is_refused},
        {"what is late means nothing", what_is_late_means_nothing},
        CU_TEST_INFO_NULL,
    };
    setenv("STEPAF_NET_IF", "lo", 1);
    return unit_run(tests);
}
