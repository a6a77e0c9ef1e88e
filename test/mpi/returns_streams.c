/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of plans on streams. Behind the death of a peer one is enqueued that needs it. With
 * --graphs 1 a graph of the first epoch is replayed in later ones: it does nothing. */
#include <stepaf/stream.h>

#include "member_streams.h"
#include "mpi/machine.h"
#include "returns.h"

enum { OPS = 6, GRAPH_OP = 999999 };

/* A process is one rank. */
static struct member_streams streams;
static struct {
    int round, stage; /* of the last operations: before a death, after it, after the return */
    int n_pieces;     /* of the GPU's memory, once nothing grows any more */
    bool has_graph;
} done;

static bool is_attention(const struct rank *rank)
{
    return rank->job->role == STEPAF_ATTENTION;
}

void returns_begin(const struct rank *rank)
{
    streams.job = rank->job;
    member_streams_begin(&streams);
}

void returns_end(struct rank *rank)
{
    member_streams_end(rank->job);
}

bool returns_prepare(struct rank *rank)
{
    (void)rank;
    return member_streams_prepare(&streams);
}

/* Which peers the epoch goes on without. */
static void mark_out(const struct rank *rank)
{
    stepaf_group_t group = is_attention(rank) ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;

    for (int p = 0; p < rank->job->peers; p++) {
        int world = stepaf_world_rank(rank->job->ctx, group, stepaf_peer_rank(rank->job->ctx, p));
        streams.is_out[p] = done.stage == 1 && returns_dies_in(rank, rank->round, world);
    }
}

/* As many operations as there are slots, as a graph; then it is replayed. */
static bool capture(void)
{
    if (!HS_TRUE(machine_capture(true)))
        return false;
    for (uint64_t n = 0; n < MEMBER_STREAMS_DEPTH; n++)
        if (!member_streams_enqueue(&streams))
            return false;
    if (!HS_TRUE(machine_capture(false)))
        return false;
    done.has_graph = true;
    for (uint64_t n = 0; n < MEMBER_STREAMS_DEPTH; n++)
        member_streams_fill(&streams, n, GRAPH_OP);
    HS_TRUE(machine_replay());
    if (!member_streams_pass())
        return false;
    bool is_right = true;
    for (uint64_t n = 0; n < MEMBER_STREAMS_DEPTH && is_right; n++)
        is_right = member_streams_look(&streams, n, GRAPH_OP);
    return is_right;
}

bool returns_work(struct rank *rank, bool is_whole)
{
    bool is_same = done.round == rank->round + 1;

    hs_step("operations");
    done.round = rank->round + 1;
    done.stage = !is_whole ? 1 : is_same || rank->is_new ? 2 : 0;
    mark_out(rank);
    if (done.has_graph) {
        HS_TRUE(machine_replay());
        if (!member_streams_pass())
            return false;
    }
    for (uint64_t n = 0; n < OPS; n++) {
        uint64_t op = ((uint64_t)rank->round * 3 + (uint64_t)done.stage) * 100 + n;
        if (!member_streams_operate(&streams, n, op))
            return false;
        if (!n && rank->is_new)
            member_ops_note_most(rank->job, STAMP_FIRST_USE,
                                 hs_now_ns() - atomic_load(&rank->job->shared->stamp[STAMP_INIT]));
    }
    if (hs_option_int(rank->job, "--graphs", 0) && !rank->round && !done.stage)
        return capture();
    if (done.stage != 2 || rank->round < 1)
        return !hs_failed();
    if (!done.n_pieces)
        done.n_pieces = machine_pieces();
    return HS_INT(machine_pieces(), ==, done.n_pieces);
}

bool returns_work_in_vain(struct rank *rank)
{
    int64_t until_ns = hs_now_ns() + RETURNS_LIMIT_S * 1000000000LL * hs_slow();
    stepaf_status_t status = STEPAF_OK;
    bool is_needed = false;

    done.stage = 1;
    mark_out(rank);
    for (int p = 0; p < rank->job->peers; p++)
        is_needed = is_needed || streams.is_out[p];
    if (!is_needed)
        return true;
    hs_step("an operation in vain");
    if (is_attention(rank)) {
        status = stepaf_start_on_stream(streams.plan, NULL, machine_stream(), NULL);
        if (!status)
            status = stepaf_wait_on_stream(streams.plan, machine_stream());
    } else {
        status = stepaf_recv_on_stream(streams.plan, machine_stream());
    }
    while (!status && hs_now_ns() < until_ns && !hs_hopeless(rank->job)) {
        status = stepaf_plan_status(streams.plan);
        hs_sleep_us(200);
    }
    return HS_INT(status, ==, STEPAF_ERR_PEER_LOST) &&
           HS_TRUE(returns_dies_in(rank, rank->round, stepaf_last_error()->peer_world_rank)) &&
           member_streams_pass();
}
