/* SPDX-License-Identifier: Apache-2.0 */
/* Short way for the most common posts: those of an operation as planned, between two ranks with one
 * queue pair. Their work requests are built with the plan (the template) and serve all peers; only
 * the targets are filled in for each peer. A post without a template, such as an answer, has one
 * filled in here. All other posts take the long way of send.c. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "transport/verbs/send.h"

static size_t template_bytes(unsigned n)
{
    return sizeof(struct stepaf_verbs_template) + n * sizeof(struct stepaf_verbs_work);
}

struct stepaf_verbs_template *stepaf_verbs_template_make(void)
{
    struct stepaf_verbs_template *template = calloc(1, template_bytes(STEPAF_MAX_TENSORS));

    for (unsigned i = 0; template && i < STEPAF_MAX_TENSORS; i++)
        template->request[i].write = (struct ibv_send_wr){
            .sg_list = &template->request[i].piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    return template;
}

/* Make the first @a n requests the chain, the last of which notifies. */
static __attribute__((noinline)) void end_after(struct stepaf_verbs_template *template, uint32_t n)
{
    for (unsigned i = 0; i < n; i++) {
        bool last = i + 1 == n;
        template->request[i].write.opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
        template->request[i].write.next = last ? NULL : &template->request[i + 1].write;
    }
    template->n = n;
}

/* Fill in the sources of the writes. Returns false if there is no write, or one is empty or needs
 * several requests. The device reads data in GPU memory, however small. */
static bool fill_template(const struct stepaf_verbs *verbs, struct stepaf_verbs_template *template,
                          const struct stepaf_post *post)
{
    uint32_t max_write = verbs->qp.max_write, inline_bytes = verbs->rails[0].max.inline_bytes;
    uint32_t n = post->n_xfer;
    uint64_t sum = 0;
    bool held = false;

    if (!n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct stepaf_xfer *xfer = &post->xfer[i];
        uint32_t bytes = xfer->bytes;
        if (__builtin_expect(bytes - 1 >= max_write, 0))
            return false; /* an empty write may be of no region */
        const struct stepaf_verbs_memory *memory =
            xfer->src_mem->registration[STEPAF_TRANSPORT_verbs];
        bool is_inline = bytes <= inline_bytes && !memory->on_gpu;
        sum += bytes;
        held = held || !is_inline;
        template->request[i].piece =
            (struct ibv_sge){(uintptr_t)xfer->src, bytes, memory->mr[0]->lkey};
        template->flags = is_inline ? IBV_SEND_INLINE : 0;
        template->request[i].write.send_flags = template->flags;
    }
    if (n != template->n)
        end_after(template, n);
    template->bytes = sum;
    template->held = held;
    if (template->held)
        template->flags |= IBV_SEND_SIGNALED;
    return true;
}

void *stepaf_verbs_make_template(const struct stepaf_post *post, size_t *bytes_p)
{
    const struct stepaf_verbs *verbs = (const struct stepaf_verbs *)post->link->transport;
    struct stepaf_verbs_template *template =
        verbs->quick ? calloc(1, template_bytes(post->n_xfer)) : NULL;

    for (unsigned i = 0; template && i < post->n_xfer; i++)
        template->request[i].write =
            (struct ibv_send_wr){.sg_list = &template->request[i].piece, .num_sge = 1};
    if (template && !fill_template(verbs, template, post)) {
        free(template);
        template = NULL;
    }
    *bytes_p = template ? template_bytes(post->n_xfer) : 0;
    return template;
}

/* Compute again for how many requests no check is needed, and subtract those of a template. Return
 * the additional flags of the last request; -1: this post takes the long way. */
static __attribute__((noinline)) int renew_room(struct stepaf_verbs_link *link,
                                                const struct stepaf_verbs_template *template)
{
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_path *path = &link->paths[0];
    uint32_t used = path->wr.posted - path->wr.done + STEPAF_VERBS_RESERVED;
    bool has_receives = stepaf_verbs_has_receives(path, verbs->qp.receives);
    uint32_t unread = path->tx.next - path->tx.read;
    uint32_t requests = used < verbs->qp.depth ? verbs->qp.depth - used : 0;
    uint32_t receives = has_receives ? verbs->qp.receives - unread : 0;
    uint32_t unasked = path->wr.posted - path->wr.asked, quarter = verbs->qp.depth / 4;
    uint32_t room = requests < receives ? requests : receives;

    path->tx.room = 0;
    if (!link->quick || requests < template->n || !has_receives ||
        link->n_held >= STEPAF_VERBS_HELD_POSTS)
        return -1; /* a post that must be held finds no space, even after one that need not */
    if (UINT32_MAX - path->wr.posted < requests)
        return -1; /* the counts wrap: the long way handles that */
    if (unasked + template->n >= quarter) {
        path->wr.asked = path->wr.posted + template->n; /* so that free space is reported in time */
        return IBV_SEND_SIGNALED;
    }
    if (room > quarter - 1 - unasked)
        room = quarter - 1 - unasked;
    if (room > template->n)
        path->tx.room = room - template->n;
    return 0;
}

/* Return the template of a post, with its 32 bits; NULL if it cannot have one. */
static inline struct stepaf_verbs_template *template_of(struct stepaf_verbs *verbs,
                                                        const struct stepaf_post *post)
{
    struct stepaf_verbs_template *template = post->template;

    if (!template) {
        template = verbs->scratch;
        if (!post->is_short || !fill_template(verbs, template, post))
            return NULL;
    }
    template->request[template->n - 1].write.imm_data = htonl(post->imm);
    return template;
}

/* Fill in the targets and wr_ids of the writes, and post them. Return 0 or the device's error. */
static inline int submit(const struct stepaf_verbs *verbs, struct stepaf_verbs_template *template,
                         const struct stepaf_post *post, unsigned flags)
{
    struct stepaf_verbs_link *link = (struct stepaf_verbs_link *)post->link;
    struct stepaf_verbs_path *path = &link->paths[0];
    const struct stepaf_xfer *xfer = post->xfer;
    struct ibv_send_wr *first = &template->request[0].write, *write = first, *bad;
    uint64_t id = link->wr_id + path->wr.posted;

    while (true) {
        const struct stepaf_verbs_rmem *rmem = (const struct stepaf_verbs_rmem *)xfer->dst;
        /* A failed request is reported even if it is not signaled. */
        write->wr_id = ++id;
        write->wr.rdma.remote_addr = rmem->address + xfer->dst_offset;
        write->wr.rdma.rkey = rmem->key[0];
        if (!write->next)
            break;
        write = write->next;
        xfer++;
    }
    write->send_flags = flags;
    path->wr.posted = (uint32_t)id;
    path->tx.next++;
    link->base.bytes_sent += template->bytes;
    link->base.messages_sent++;
    return verbs->provider->post_send(path->qp, first, &bad);
}

static __attribute__((noinline, cold)) void refused(struct stepaf_verbs_link *link, int error)
{
    stepaf_verbs_lost(link, "%s, queue pair 0x%x: posting: %s", link->paths[0].rail->name,
                      link->paths[0].qp->qp_num, strerror(error < 0 ? -error : error));
}

/* Send a post with a template. Returns false if it takes the long way. */
static inline bool post_template(const struct stepaf_verbs *verbs,
                                 struct stepaf_verbs_template *template, struct stepaf_post *post)
{
    struct stepaf_verbs_link *link = (struct stepaf_verbs_link *)post->link;
    struct stepaf_verbs_path *path = &link->paths[0];
    unsigned flags = template->flags;

    if (__builtin_expect(path->tx.room < template->n, 0)) {
        int more = renew_room(link, template);
        if (more < 0)
            return false;
        flags |= (unsigned)more;
    } else {
        path->tx.room -= template->n;
    }
    post->state = STEPAF_POST_SENT;
    int error = submit(verbs, template, post, flags);
    if (__builtin_expect(error != 0, 0)) {
        refused(link, error);
    } else if (template->held) {
        path->wr.asked = path->wr.posted;
        stepaf_verbs_hold(link, post);
        if (link->n_held == STEPAF_VERBS_HELD_POSTS)
            path->tx.room = 0;
    }
    return true;
}

static __attribute__((noinline)) unsigned post_long(struct stepaf_post *const *posts, unsigned n)
{
    unsigned n_queued = 0;

    for (unsigned i = 0; i < n; i++)
        n_queued += !stepaf_verbs_post_long(posts[i]);
    return n_queued;
}

unsigned stepaf_verbs_post(struct stepaf_post *const *posts, unsigned n)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)posts[0]->link->transport;
    struct stepaf_verbs_template *template = verbs->scratch; /* no post has this template */
    struct stepaf_post *const *end = posts + n;
    unsigned n_queued = 0;

    if (__builtin_expect(!verbs->quick, 0))
        return post_long(posts, n);
    for (; posts != end; posts++) {
        struct stepaf_post *post = *posts;
        if (post->template != template)
            template = template_of(verbs, post);
        if (__builtin_expect(!template || post->at || post->at_offset || post->link->dead ||
                                 !post_template(verbs, template, post),
                             0)) {
            n_queued += !stepaf_verbs_post_long(post);
            template = verbs->scratch;
        }
    }
    return n_queued;
}
