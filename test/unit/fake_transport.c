/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/region.h"
#include "fake.h"

struct fake_transport {
    struct stepaf_transport base;
    struct fake_job *job;
    struct fake_link *links; /* by peer */
    uint32_t n_peers;
    uint32_t split_peer; /* fake_split: the peer that one of two transports reaches */
    bool is_for;         /* and this is that transport */
};

static void transport_close(struct stepaf_transport *base)
{
    struct fake_transport *transport = (struct fake_transport *)base;

    free(transport->links);
    free(transport);
}

static void transport_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack)
{
    (void)transport;
    stepaf_pack_text(pack, "here");
}

static void transport_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                               struct stepaf_pack *pack)
{
    (void)transport;
    stepaf_pack_u32(pack, mem->id);
}

static stepaf_status_t transport_connect(struct stepaf_transport *base,
                                         const struct stepaf_peer_facts *facts,
                                         struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                         char *reason)
{
    struct fake_transport *transport = (struct fake_transport *)base;
    char word[16];

    stepaf_unpack_text(unpack, word, sizeof word);
    fake_must(strcmp(word, "here") == 0 && facts->peer < transport->n_peers, "connect");
    reason[0] = '\0';
    *link_p = &transport->links[facts->peer].base;
    return STEPAF_OK;
}

/* The unreachable peer is always the second. */
static stepaf_status_t transport_finish_connects(struct stepaf_transport *base, int64_t deadline_ns,
                                                 int wait_ms, uint32_t *peer_p, char *reason)
{
    const struct fake_job *job = ((struct fake_transport *)base)->job;

    fake_must(deadline_ns > stepaf_monotonic_ns() && wait_ms <= 1, "a deadline to come");
    if (!job->join_reason)
        return STEPAF_OK;
    *peer_p = 1;
    snprintf(reason, STEPAF_REASON_MAX, "%s", job->join_reason);
    return STEPAF_ERR_NO_TRANSPORT;
}

static bool transport_is_quiet(struct stepaf_transport *base, bool begin, uint32_t *peer_p)
{
    struct fake_transport *transport = (struct fake_transport *)base;

    (void)begin;
    *peer_p = transport->n_peers - 1;
    return !transport->job->unquiet || !transport->job->unquiet--;
}

static void transport_disconnect(struct stepaf_link *link)
{
    (void)link;
}

static void transport_fence(struct stepaf_link *link)
{
    fake_must(link->dead, "given up before");
    ((struct fake_transport *)link->transport)->job->n_severed++;
}

static stepaf_status_t transport_import_mem(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                            struct stepaf_unpack *unpack,
                                            struct stepaf_rmem **rmem_p)
{
    const struct fake_job *job = ((struct fake_transport *)link->transport)->job;

    if (job->import_reason)
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT, "%s", job->import_reason);
    struct fake_rmem *rmem = calloc(1, sizeof *rmem);
    fake_must(stepaf_unpack_u32(unpack) == id && rmem && bytes < 1 << 26, "import");
    rmem->base = (struct stepaf_rmem){id, bytes};
    rmem->memory = calloc(bytes ? bytes : 1, 1);
    fake_must(rmem->memory != NULL, "import");
    *rmem_p = &rmem->base;
    return STEPAF_OK;
}

static void transport_release_mem(struct stepaf_link *link, struct stepaf_rmem *base)
{
    struct fake_rmem *rmem = (struct fake_rmem *)base;

    (void)link;
    free(rmem->memory);
    free(rmem);
}

static void record(struct fake_job *job, const struct stepaf_post *post)
{
    if (job->n_records++ >= FAKE_RECORDS)
        return;
    struct fake_record *next = &job->records[job->n_records - 1];
    *next = (struct fake_record){post->link->peer, post->msg, post->n_xfer, {{0}}};
    for (unsigned i = 0; i < post->n_xfer; i++)
        next->xfer[i] = post->xfer[i];
}

static void post_one(struct fake_job *job, struct stepaf_post *post)
{
    struct fake_link *link = (struct fake_link *)post->link;
    struct stepaf_upcalls *up = link->base.transport->up;

    if (link->breaks) {
        link->breaks = false;
        up->lost(up, &link->base, "the link is broken");
    }
    post->state = STEPAF_POST_SENT;
    if (link->base.dead)
        return;
    if (!link->room || link->held) {
        post->state = STEPAF_POST_QUEUED;
        return;
    }
    if (link->cannot_read && post->n_xfer) {
        link->cannot_read = false;
        up->refused(up, post);
        return;
    }
    link->room--;
    record(job, post);
    link->base.messages_sent++;
    for (unsigned i = 0; i < post->n_xfer; i++) {
        const struct stepaf_xfer *xfer = &post->xfer[i];
        if (xfer->bytes && !link->loses)
            memcpy(((const struct fake_rmem *)xfer->dst)->memory + xfer->dst_offset, xfer->src,
                   xfer->bytes);
        if (!link->loses)
            link->base.bytes_sent += xfer->bytes;
    }
    if (link->holds && post->n_xfer) {
        post->state = STEPAF_POST_POSTED;
        link->held = post;
    }
}

static unsigned transport_post(struct stepaf_post *const *posts, unsigned n)
{
    unsigned n_queued = 0;

    for (unsigned i = 0; i < n; i++) {
        post_one(((struct fake_transport *)posts[i]->link->transport)->job, posts[i]);
        n_queued += posts[i]->state == STEPAF_POST_QUEUED;
    }
    return n_queued;
}

static void transport_retire(struct stepaf_post *post)
{
    struct fake_link *link = (struct fake_link *)post->link;

    if (link->held == post)
        link->held = NULL;
}

static unsigned transport_progress(struct stepaf_transport *base, unsigned polls)
{
    struct fake_job *job = ((struct fake_transport *)base)->job;
    unsigned n = job->ctx->epoch >= job->sayings_wait_for ? job->n_sayings : 0;

    (void)polls; /* nothing else makes progress meanwhile */
    for (unsigned i = 0; i < n; i++)
        fake_tell(job, job->sayings[i].peer, &job->sayings[i].msg);
    if (n)
        job->n_sayings = 0;
    if (!n && job->on_progress)
        job->on_progress(job);
    return n;
}

static void transport_check_peers(struct stepaf_transport *base)
{
    ((struct fake_transport *)base)->job->n_idle++;
}

static unsigned transport_arm(struct stepaf_transport *base, int *fds_p, unsigned capacity)
{
    struct fake_job *job = ((struct fake_transport *)base)->job;

    job->n_armed++;
    if (!job->wake_fd || !capacity)
        return 0;
    fds_p[0] = job->wake_fd;
    return 1;
}

/* Two, of which the second is declared lost. */
static unsigned transport_count_rails(const struct stepaf_link *base,
                                      struct stepaf_rail_count *rails_p)
{
    rails_p[0] = (struct stepaf_rail_count){base->bytes_sent, "fake0:1", true};
    rails_p[1] = (struct stepaf_rail_count){7, "a name that is longer than others", false};
    return 2;
}

static void transport_query_memory(struct stepaf_transport *base, size_t *per_link_p,
                                   size_t *staging_p)
{
    (void)base;
    *per_link_p = sizeof(struct fake_link);
    *staging_p = 0;
}

static const struct stepaf_transport_ops fake_ops = {
    .name = "fake",
    .close = transport_close,
    .is_quiet = transport_is_quiet,
    .pack_address = transport_pack_address,
    .pack_mem = transport_pack_mem,
    .connect = transport_connect,
    .disconnect = transport_disconnect,
    .fence = transport_fence,
    .finish_connects = transport_finish_connects,
    .import_mem = transport_import_mem,
    .release_mem = transport_release_mem,
    .post = transport_post,
    .retire = transport_retire,
    .progress = transport_progress,
    .arm = transport_arm,
    .check_peers = transport_check_peers,
    .count_rails = transport_count_rails,
    .query_memory = transport_query_memory,
};

void fake_transport_install(struct fake_job *job)
{
    struct stepaf_ctx *ctx = job->ctx;
    struct fake_transport *transport = calloc(1, sizeof *transport);
    static struct stepaf_transport_ops ops;

    fake_must(transport != NULL, "transport");
    ops = stepaf_transport_complete(&fake_ops);
    transport->base = (struct stepaf_transport){.ops = &ops, .up = &ctx->up};
    transport->job = job;
    transport->n_peers = ctx->n_peers;
    transport->links = calloc(ctx->n_peers, sizeof *transport->links);
    fake_must(transport->links != NULL, "links");
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        transport->links[p] = (struct fake_link){
            .base = {.ops = &ops, .transport = &transport->base, .peer = p, .name = "fake"},
            .room = FAKE_ENDLESS};
    ctx->net.transports[0] = &transport->base;
    ctx->net.n_transports = 1;
    ctx->polling.at_once = 1;
}

static stepaf_status_t transport_add(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    if (mem->kind == STEPAF_MEM_CUDA)
        mem->registration[transport->index] = transport;
    return STEPAF_OK;
}

static void transport_drop(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    mem->registration[transport->index] = NULL;
}

static stepaf_status_t transport_flush(struct stepaf_link *link)
{
    ((struct fake_transport *)link->transport)->job->n_flushes++;
    return STEPAF_OK;
}

static void transport_describe(const struct stepaf_transport *transport, char *text)
{
    (void)transport;
    snprintf(text, STEPAF_REASON_MAX, "as it is");
}

void fake_take_gpu(struct fake_job *job)
{
    static struct stepaf_transport_ops ops;
    struct fake_transport *transport = (struct fake_transport *)job->ctx->net.transports[0];

    ops = stepaf_transport_complete(&fake_ops);
    ops.caps |= STEPAF_TRANSPORT_GPU;
    ops.reg_mem = transport_add;
    ops.dereg_mem = transport_drop;
    ops.describe_gpu = transport_describe;
    ops.flush_gpu = transport_flush;
    transport->base.ops = &ops;
    for (uint32_t p = 0; p < transport->n_peers; p++)
        transport->links[p].base.ops = &ops;
}

/* Each registration and each template names its owner. */
static stepaf_status_t split_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    struct fake_job *job = ((struct fake_transport *)transport)->job;

    if (transport->index == 1 && job->refuses_mem)
        return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_NONE, "told to refuse");
    mem->registration[transport->index] = transport;
    job->n_registered[transport->index]++;
    return STEPAF_OK;
}

static void split_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    struct fake_job *job = ((struct fake_transport *)transport)->job;

    if (mem->registration[transport->index])
        job->n_registered[transport->index]--;
    mem->registration[transport->index] = NULL;
}

static void *split_make_template(const struct stepaf_post *post, size_t *bytes_p)
{
    struct stepaf_transport **template = malloc(sizeof(struct stepaf_transport *));

    fake_must(template != NULL, "template");
    *template = post->link->transport;
    *bytes_p = sizeof(struct stepaf_transport *);
    return template;
}

static stepaf_status_t split_connect(struct stepaf_transport *base,
                                     const struct stepaf_peer_facts *facts,
                                     struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                     char *reason)
{
    const struct fake_transport *transport = (const struct fake_transport *)base;

    snprintf(reason, STEPAF_REASON_MAX, "the other one's");
    if (transport->is_for == (facts->peer == transport->split_peer))
        return transport_connect(base, facts, unpack, link_p, reason);
    *link_p = NULL;
    return STEPAF_OK;
}

void fake_split(struct fake_job *job, uint32_t peer)
{
    static struct stepaf_transport_ops ops[2];
    struct fake_transport *first = (struct fake_transport *)job->ctx->net.transports[0];

    fake_transport_install(job);
    struct fake_transport *second = (struct fake_transport *)job->ctx->net.transports[0];
    for (int i = 0; i < 2; i++) {
        struct fake_transport *transport = i ? second : first;
        ops[i] = stepaf_transport_complete(&fake_ops);
        ops[i].name = i ? "other" : "fake";
        ops[i].reg_mem = split_reg_mem;
        ops[i].dereg_mem = split_dereg_mem;
        ops[i].make_template = split_make_template;
        ops[i].connect = split_connect;
        transport->base.ops = &ops[i];
        transport->base.index = (unsigned)i;
        transport->split_peer = peer;
        transport->is_for = i == 1;
        for (uint32_t p = 0; p < transport->n_peers; p++)
            transport->links[p].base.ops = &ops[i];
        job->ctx->net.transports[i] = &transport->base;
        for (uint32_t r = 0; r < job->ctx->memory.n_regions; r++)
            (void)ops[i].reg_mem(&transport->base, &job->ctx->memory.regions[r]->mem);
    }
    job->ctx->net.n_transports = 2;
}

struct fake_link *fake_link(struct fake_job *job, uint32_t peer)
{
    return &((struct fake_transport *)job->ctx->net.transports[0])->links[peer];
}

void fake_complete(struct fake_job *job, uint32_t peer)
{
    struct fake_link *link = fake_link(job, peer);

    if (link->held)
        link->held->state = STEPAF_POST_SENT;
    link->held = NULL;
}
