/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank shows to tools on the same machine: the file, the measuring of times, the writes. */
#include "core/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/shorten.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/member_net.h"
#include "core/clock_keep.h"
#include "core/counters.h"
#include "core/watch.h"

_Static_assert((int)STEPAF_METRICS_PEER_RAILS == (int)STEPAF_LINK_RAILS, "each has a place");

enum {
    WRITE_EVERY_US = 100000,
    PEERS_AT_ONCE = 64,   /* takes a few microseconds */
    QUEUE_LOOKED_AT = 256 /* the length of a longer queue is not counted */
};

/* ---- the file ---- */

static struct stepaf_metrics_table place_table(uint64_t *bytes, size_t each, uint32_t n)
{
    uint64_t at = (*bytes + STEPAF_METRICS_ALIGN - 1) / STEPAF_METRICS_ALIGN * STEPAF_METRICS_ALIGN;

    *bytes = at + (uint64_t)each * n;
    return (struct stepaf_metrics_table){(uint32_t)at, (uint32_t)each, n, 0};
}

/* Make the file. Its size is sealed, so that neither side can run past its end. NULL: errno says
 * why. */
static void *make_file(struct stepaf_metrics *metrics)
{
    stepaf_fork_begin();
    stepaf_fd_begin();
    metrics->fd = stepaf_fork_end(
        stepaf_fd_end(memfd_create(STEPAF_METRICS_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING)));
    if (metrics->fd < 0)
        return NULL;
    void *base = MAP_FAILED;
    if (!stepaf_fd_resize(metrics->fd, metrics->bytes) &&
        !fcntl(metrics->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        base = mmap(NULL, metrics->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, metrics->fd, 0);
    if (base != MAP_FAILED)
        return base;
    int error = errno;
    stepaf_fork_close(metrics->fd);
    errno = error;
    return NULL;
}

/* ---- whether times are measured ---- */

static void take_path(struct stepaf_ctx *ctx, const struct stepaf_metrics_path *path)
{
    ctx->up.deliver_imm = path->deliver_imm;
    ctx->clock.told_from = path->told_from;
}

/* Set where times are counted. @a histograms: of all peers; NULL: times are not measured. */
static void set_times(struct stepaf_ctx *ctx, struct stepaf_histogram *histograms)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        ctx->peers[p].times = histograms ? &histograms[(size_t)p * STEPAF_TIMES] : NULL;
}

static bool asks_for_times(const struct stepaf_ctx *ctx, const struct stepaf_metrics *metrics)
{
    return ctx->env.metrics == STEPAF_ENV_METRICS_on ||
           atomic_load_explicit(&metrics->head->wish.until_ns, memory_order_relaxed) >
               stepaf_monotonic_ns();
}

static void measure_if_asked(struct stepaf_ctx *ctx, struct stepaf_metrics *metrics)
{
    if (asks_for_times(ctx, metrics) == metrics->measures)
        return;
    metrics->measures = !metrics->measures;
    set_times(ctx, metrics->measures ? metrics->histograms : NULL);
    take_path(ctx, metrics->measures ? &metrics->measured : &metrics->plain);
}

/* ---- open and close ---- */

/* Return a number that tells jobs apart, made from world rank 0's process. A process that joins
 * after another process has taken rank 0's place sees a different first process; STEPAF_METRICS_JOB
 * serves this case. */
static uint64_t job_number(const struct stepaf_ctx *ctx)
{
    const struct stepaf_rank *first = &ctx->job.ranks[0];
    uint64_t who[] = {first->node_id, first->pid, (uint64_t)ctx->job.boot.size};

    return stepaf_hash(STEPAF_HASH_START, who, sizeof(who));
}

static void introduce_rank(const struct stepaf_ctx *ctx, struct stepaf_metrics_who *who)
{
    *who = (struct stepaf_metrics_who){
        .job = job_number(ctx),
        .pid = (uint32_t)getpid(),
        .role = (uint32_t)ctx->role,
        .world_rank = ctx->job.boot.rank,
        .world_size = ctx->job.boot.size,
        .rank = (int32_t)ctx->job.ranks[ctx->job.boot.rank].rank,
    };
    snprintf(who->name, sizeof(who->name), "%s", ctx->env.metrics_job);
    stepaf_shorten(ctx->job.topo.host, who->host, sizeof(who->host));
    snprintf(who->library, sizeof(who->library), "%s", STEPAF_VERSION_STRING);
}

void stepaf_metrics_open(struct stepaf_ctx *ctx, stepaf_deliver_imm_fn *deliver_imm)
{
    struct stepaf_metrics *metrics = NULL;
    uint64_t bytes = sizeof(struct stepaf_metrics_head);

    if (ctx->env.metrics == STEPAF_ENV_METRICS_off)
        return;
    struct stepaf_metrics_table counters = place_table(&bytes, sizeof(uint64_t),
                                                       sizeof(stepaf_counters_t) / 8 - 1),
                                peers = place_table(&bytes, sizeof(struct stepaf_metrics_peer),
                                                    ctx->n_peers),
                                histograms = place_table(&bytes, sizeof(struct stepaf_histogram),
                                                         ctx->n_peers * STEPAF_TIMES),
                                late = place_table(&bytes, sizeof(struct stepaf_metrics_late),
                                                   ctx->polling.watch ? ctx->n_peers + 1 : 0);
    if (bytes > UINT32_MAX || !(metrics = calloc(1, sizeof(*metrics))))
        goto err;
    metrics->bytes = bytes;
    struct stepaf_metrics_head *head = make_file(metrics);
    if (!head)
        goto err;
    memcpy(head->magic, STEPAF_METRICS_MAGIC, sizeof(head->magic));
    head->bytes = sizeof(*head);
    head->all_bytes = bytes;
    head->counters = counters;
    head->peers = peers;
    head->histograms = histograms;
    head->late = late;
    introduce_rank(ctx, &head->who);
    head->live.began_ns = stepaf_monotonic_ns();
    metrics->head = head;
    metrics->counters = (char *)head + counters.at;
    metrics->peers = (void *)((char *)head + peers.at);
    metrics->histograms = (void *)((char *)head + histograms.at);
    if (late.n)
        metrics->late = (void *)((char *)head + late.at);
    metrics->plain = (struct stepaf_metrics_path){ctx->up.deliver_imm, ctx->clock.told_from};
    metrics->measured = (struct stepaf_metrics_path){deliver_imm, 0};
    ctx->polling.metrics = metrics;
    measure_if_asked(ctx, metrics);
    stepaf_metrics_write(ctx);
    atomic_thread_fence(memory_order_release);
    head->version = STEPAF_METRICS_VERSION; /* valid from now on */
    return;

err:
    stepaf_log_(ctx->env.metrics == STEPAF_ENV_METRICS_on ? STEPAF_LOG_WARN : STEPAF_LOG_INFO,
                "stepaf-top and stepaf-exporter cannot show this process: %s",
                bytes > UINT32_MAX ? "too many peers" : stepaf_why(errno));
    free(metrics);
}

void stepaf_metrics_close(struct stepaf_ctx *ctx)
{
    struct stepaf_metrics *metrics = ctx->polling.metrics;

    if (!metrics)
        return;
    ctx->polling.metrics = NULL;
    set_times(ctx, NULL);
    munmap(metrics->head, metrics->bytes);
    stepaf_fork_close(metrics->fd);
    free(metrics);
}

/* ---- what is written ---- */

static uint32_t count_waiting(const struct stepaf_list *list)
{
    uint32_t n = 0;

    for (const struct stepaf_list *at = list->next; at != list && n < QUEUE_LOOKED_AT;
         at = at->next)
        n++;
    return n;
}

static uint32_t count_lives(const struct stepaf_ctx *ctx, int world_rank)
{
    return ctx->job.members.net
               ? stepaf_member_net_consensus(ctx->job.members.net)->lives[world_rank]
               : 1;
}

static void write_link(const struct stepaf_link *link, struct stepaf_metrics_peer *shown)
{
    struct stepaf_rail_count rails[STEPAF_LINK_RAILS];

    shown->bytes_sent = link->bytes_sent;
    shown->messages_sent = link->messages_sent;
    shown->connects_again = link->connects_again;
    shown->messages_again = link->messages_again;
    memcpy(shown->link, link->name, sizeof(shown->link));
    memcpy(shown->address, link->address, sizeof(shown->address));
    shown->n_rails = link->ops->count_rails(link, rails);
    for (unsigned i = 0; i < shown->n_rails; i++) {
        struct stepaf_metrics_rail *rail = &shown->rails[i];
        rail->bytes_sent = rails[i].bytes_sent;
        rail->flags = rails[i].is_up ? STEPAF_METRICS_RAIL_UP : 0;
        snprintf(rail->name, sizeof(rail->name), "%.27s", rails[i].name);
    }
}

static void write_peer(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer,
                       uint32_t now_us, struct stepaf_metrics_peer *shown)
{
    *shown = (struct stepaf_metrics_peer){
        .world_rank = peer->who.world_rank,
        .rank = peer->who.rank,
        .flags = (peer->lost ? STEPAF_METRICS_LOST : 0u) | (peer->is_out ? STEPAF_METRICS_OUT : 0u),
        .queued = count_waiting(&peer->queue),
        .ready = count_waiting(&peer->ready),
        .lives = count_lives(ctx, peer->who.world_rank),
        .bytes_received = peer->bytes_received,
        .clock_bound_ns = stepaf_clock_bound_ns(ctx, peer),
        .written_us = now_us,
    };
    if (peer->link)
        write_link(peer->link, shown);
    if (peer->lost)
        snprintf(shown->reason, sizeof(shown->reason), "%.90s", peer->reason);
}

static void write_peers(const struct stepaf_ctx *ctx, struct stepaf_metrics *metrics)
{
    const struct stepaf_watch *watch = metrics->late ? ctx->polling.watch : NULL;
    const struct stepaf_metrics_late *late = watch ? watch->ops->late(watch) : NULL;
    uint32_t n = ctx->n_peers < PEERS_AT_ONCE ? ctx->n_peers : PEERS_AT_ONCE;
    uint32_t now_us = (uint32_t)(stepaf_monotonic_ns() / 1000);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t p = metrics->next_peer < ctx->n_peers ? metrics->next_peer : 0;
        write_peer(ctx, &ctx->peers[p], now_us, &metrics->peers[p]);
        if (late)
            metrics->late[p] = late[p];
        metrics->next_peer = p + 1;
    }
    if (late)
        metrics->late[ctx->n_peers] = late[ctx->n_peers];
}

void stepaf_metrics_write(struct stepaf_ctx *ctx)
{
    struct stepaf_metrics *metrics = ctx->polling.metrics;

    if (!metrics)
        return;
    struct stepaf_metrics_live *live = &metrics->head->live;
    stepaf_counters_t counters = stepaf_core_counters(ctx);
    uint64_t sequence = atomic_load_explicit(&live->sequence, memory_order_relaxed);
    atomic_store_explicit(&live->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    memcpy(metrics->counters, &counters.size + 1, sizeof(counters) - sizeof(counters.size));
    write_peers(ctx, metrics);
    if (ctx->polling.watch)
        ctx->polling.watch->ops->show(ctx->polling.watch, &metrics->head->verdict);
    live->written_ns = stepaf_monotonic_ns();
    live->epoch = ctx->epoch;
    live->commits = atomic_load_explicit(&ctx->commit.n_done, memory_order_relaxed);
    live->n_alive = ctx->n_alive;
    live->n_peers = ctx->n_peers;
    live->life = count_lives(ctx, ctx->job.boot.rank);
    live->measures = metrics->measures;
    atomic_store_explicit(&live->sequence, sequence + 2, memory_order_release);
}

void stepaf_metrics_keep(struct stepaf_ctx *ctx, uint64_t now)
{
    struct stepaf_metrics *metrics = ctx->polling.metrics;

    if (!metrics || (int64_t)(now - metrics->due) < 0)
        return;
    metrics->due = now + (uint64_t)(WRITE_EVERY_US * ctx->clock.own.ticks_per_us);
    measure_if_asked(ctx, metrics);
    stepaf_metrics_write(ctx);
}
