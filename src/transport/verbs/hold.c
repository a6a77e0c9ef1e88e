/* SPDX-License-Identifier: Apache-2.0 */
/* Posts that are handed over, whose tensors the device may still read. They complete in the order
 * in which they were posted. */
#include "transport/verbs/failover.h"

void stepaf_verbs_hold(struct stepaf_verbs_link *link, struct stepaf_post *post)
{
    unsigned at = (link->first_held + link->n_held++) % STEPAF_VERBS_HELD_POSTS;

    link->held[at] = post;
    /* Requests posted beyond that report receives to the peer, and are not signaled. */
    for (unsigned i = 0; i < link->n_paths; i++)
        link->held_upto[at * link->n_paths + i] = link->paths[i].wr.asked;
    post->at = (uint8_t)at; /* where to find it again */
    post->state = STEPAF_POST_POSTED;
    if (link->failover)
        stepaf_verbs_log_post(link, at, post);
}

static bool is_through(const struct stepaf_verbs_link *link, unsigned at)
{
    for (unsigned i = 0; i < link->n_paths; i++)
        if ((int32_t)(link->paths[i].wr.done - link->held_upto[at * link->n_paths + i]) < 0)
            return false;
    return true;
}

unsigned stepaf_verbs_release_first(struct stepaf_verbs_link *link)
{
    struct stepaf_post *post = link->held[link->first_held];

    link->first_held = (link->first_held + 1) % STEPAF_VERBS_HELD_POSTS;
    link->n_held--;
    if (!post)
        return 0;
    post->state = STEPAF_POST_SENT;
    return 1;
}

unsigned stepaf_verbs_let_go(struct stepaf_verbs_link *link, bool all)
{
    unsigned n = 0;

    while (link->n_held && (all || is_through(link, link->first_held)))
        n += stepaf_verbs_release_first(link);
    return n;
}

void stepaf_verbs_retire(struct stepaf_post *post)
{
    struct stepaf_verbs_link *link = (struct stepaf_verbs_link *)post->link;

    if (post->at >= STEPAF_VERBS_HELD_POSTS || link->held[post->at] != post)
        return;
    if (link->failover)
        stepaf_verbs_log_forget(link, post->at);
    link->held[post->at] = NULL;
}
