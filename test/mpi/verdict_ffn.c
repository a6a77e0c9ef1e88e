/* SPDX-License-Identifier: Apache-2.0 */
/* The FFN ranks: each batch takes as long, at the same time as others', unless it is to be slow. */
#include "verdict.h"

enum { LOOK_EVERY_US = 300, BUSY_TIMES = 4 };
static const int64_t AWAY_NS = 10000000000; /* at most */

struct batch {
    stepaf_batch_h handle;
    int attention;
    uint32_t sequence;
    bool last;
    int64_t before_ns; /* when the library was asked for it */
    int64_t due_ns;
};

struct server {
    struct hs_job *job;
    uint8_t *answer;
    size_t bytes; /* of it */
    int64_t look_us;
    struct batch batches[VD_RANKS];
    int n;
    int left;                  /* attention ranks that have more */
    int64_t looked_ns;         /* the last time */
    int64_t away_ns[VD_RANKS]; /* the longest since the last answer to each */
    int64_t hold_in_until, hold_out_until;
};

/* What is ordered for the operation; 0: nothing here. */
static int64_t ordered(const struct server *server, int attention, uint32_t sequence,
                       enum vd_kind kind)
{
    const struct vd_order *order = &vd_shared->orders[attention];

    return order->sequence == sequence && order->ffn == server->job->index ? order->delay_ns[kind]
                                                                           : 0;
}

/* When operation @a sequence has been started; waits for that without the library. */
static int64_t await_start(int attention, uint32_t sequence)
{
    const struct vd_order *order = &vd_shared->orders[attention];
    int64_t until = hs_now_ns() + AWAY_NS;

    while (order->started != sequence + 1 && hs_now_ns() < until)
        hs_sleep_us(50);
    return order->started_ns;
}

/* Behind this answer, the rank does not look, or nothing gets through to it. */
static void prepare_next(struct server *server, int attention, uint32_t next)
{
    int64_t away = ordered(server, attention, next, VD_QUEUE);
    int64_t of_rail = ordered(server, attention, next, VD_RAIL_THERE);
    int64_t hold = of_rail ? of_rail : ordered(server, attention, next, VD_THERE);

    if (hold) {
        vd_net_hold_in(of_rail ? vd_shared->orders[attention].rail : VD_ALL_RAILS);
        server->hold_in_until = await_start(attention, next) + hold;
    }
    if (away) {
        int64_t until = await_start(attention, next) + away;
        while (hs_now_ns() < until)
            hs_sleep_us((until - hs_now_ns()) / 1000 + 1);
    }
}

static bool answer(struct server *server, struct batch *batch)
{
    struct hs_job *job = server->job;
    stepaf_tensor_t tensor = {VD_PULL_KEY, server->answer, server->bytes};
    struct vd_truth *truth =
        &vd_shared->truths[job->index][batch->attention][batch->sequence % VD_TRUTHS];
    int64_t of_rail = ordered(server, batch->attention, batch->sequence, VD_RAIL_BACK);
    int64_t hold = of_rail ? of_rail : ordered(server, batch->attention, batch->sequence, VD_BACK);

    if (hold) {
        vd_net_hold_out(of_rail ? vd_shared->orders[batch->attention].rail : VD_ALL_RAILS);
        server->hold_out_until = hs_now_ns() + hold;
    }
    stepaf_status_t status =
        stepaf_respond(batch->handle, &tensor, 1, STEPAF_RESPOND_RELEASE, NULL);
    /* All that the library may have counted, and the wait for the batch. */
    truth->work_ns = hs_now_ns() - batch->before_ns;
    truth->away_ns = server->away_ns[batch->attention];
    truth->sequence = batch->sequence + 1;
    server->away_ns[batch->attention] = 0;
    return HS_OK(status);
}

static void note_look(struct server *server)
{
    int64_t now = hs_now_ns();

    for (int a = 0; a < VD_RANKS; a++)
        if (now - server->looked_ns > server->away_ns[a])
            server->away_ns[a] = now - server->looked_ns;
    server->looked_ns = now;
    if (server->hold_in_until && now >= server->hold_in_until) {
        vd_net_hold_in(VD_NO_RAIL);
        server->hold_in_until = 0;
    }
    if (server->hold_out_until && now >= server->hold_out_until) {
        vd_net_hold_out(VD_NO_RAIL);
        server->hold_out_until = 0;
    }
}

/* Answer what is due. */
static bool answer_due(struct server *server)
{
    for (int i = 0; i < server->n; i++) {
        struct batch batch = server->batches[i];
        if (batch.due_ns > hs_now_ns())
            continue;
        server->batches[i--] = server->batches[--server->n];
        if (!answer(server, &batch))
            return false;
        server->left -= batch.last;
        prepare_next(server, batch.attention, batch.sequence + 1);
    }
    return true;
}

/* Take a batch, if one comes within a moment. */
static bool take(struct server *server, int64_t work_ns)
{
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_tensor_info_t push = {.size = sizeof(push)};
    struct batch *batch = &server->batches[server->n];
    stepaf_status_t status;
    int n;

    batch->before_ns = hs_now_ns();
    if (server->look_us)
        hs_sleep_us(server->look_us);
    status = stepaf_recv(server->job->ctx, STEPAF_FROM_ANY, 0, server->look_us ? 0 : LOOK_EVERY_US,
                         &batch->handle, 1, &n);
    if (status == STEPAF_ERR_TIMEOUT)
        return true;
    if (!HS_OK(status) || !HS_OK(stepaf_batch_query(batch->handle, &info)) ||
        !HS_OK(stepaf_batch_tensor(batch->handle, 0, &push)))
        return false;
    const struct vd_push *said = push.data;
    batch->attention = info.attention_rank;
    batch->sequence = said->sequence;
    batch->last = said->last;
    batch->due_ns = hs_now_ns() + (vd_shared->busy ? BUSY_TIMES : 1) * work_ns +
                    ordered(server, batch->attention, batch->sequence, VD_WORK);
    server->n++;
    return true;
}

void vd_serve(struct hs_job *job, uint8_t *memory, size_t bytes, int64_t work_ns)
{
    struct server server = {.job = job,
                            .answer = memory,
                            .bytes = bytes,
                            .left = job->attn,
                            .look_us = hs_option_int(job, "--look-us", 0),
                            .looked_ns = hs_now_ns()};
    bool good = true;

    while (good && (server.left > 0 || server.hold_out_until) && !hs_hopeless(job)) {
        note_look(&server);
        good = answer_due(&server) && (server.n == VD_RANKS || take(&server, work_ns));
    }
    vd_net_hold_in(VD_NO_RAIL);
    vd_net_hold_out(VD_NO_RAIL);
}
