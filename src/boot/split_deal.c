/* SPDX-License-Identifier: Apache-2.0 */
/* Dealing of roles, over the job or over each of its nodes. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "boot/split.h"

/* A rank and its node, to be sorted by node. */
struct place {
    uint64_t node_id;
    int rank;
};

static int by_node_and_rank(const void *a, const void *b)
{
    const struct place *one = a;
    const struct place *other = b;

    if (one->node_id != other->node_id)
        return one->node_id > other->node_id ? 1 : -1;
    return (one->rank > other->rank) - (one->rank < other->rank);
}

/* Return how many of @a n ranks are attention; -1: the counts do not fit. */
static int attention_of(const struct stepaf_split *split, int n)
{
    int attention = split->attention ? split->attention : n - split->ffn;
    int ffn = split->ffn ? split->ffn : n - split->attention;

    return attention > 0 && ffn > 0 && attention + ffn == n ? attention : -1;
}

/* Give the @a n ranks of @a places their roles. Interleaved, the first k ranks hold attention's
 * share of k, rounded up, for every k: the roles are as even as possible, and attention comes
 * first. */
static void deal_roles(const struct stepaf_split *split, const struct place *places, int n,
                       uint8_t *roles_p)
{
    int attention = attention_of(split, n);
    int64_t dealt = 0;

    for (int i = 0; i < n; i++) {
        int64_t due = attention;
        if (split->interleave)
            due = ((int64_t)(i + 1) * attention + n - 1) / n;
        roles_p[places[i].rank] = dealt < due ? STEPAF_ATTENTION : STEPAF_FFN;
        dealt += dealt < due;
    }
}

static stepaf_status_t refuse_job(const struct stepaf_split *split, int size)
{
    if (split->attention && split->ffn)
        return stepaf_split_refuse(split->text, "%d + %d ranks are not the job's %d ranks",
                                   split->attention, split->ffn, size);
    return stepaf_split_refuse(split->text, "the job has %d ranks, and none remain for %s", size,
                               split->ffn ? "attention" : "FFN");
}

static stepaf_status_t refuse_node(const struct stepaf_split *split, const char *host, int n)
{
    if (split->attention && split->ffn)
        return stepaf_split_refuse(split->text, "node %.64s has %d ranks of the job and needs %d",
                                   host, n, split->attention + split->ffn);
    return stepaf_split_refuse(split->text,
                               "node %.64s has %d ranks of the job, and none remain for %s", host,
                               n, split->ffn ? "attention" : "FFN");
}

/* Return how many of @a places, from the first on, are on one node. */
static int node_size(const struct place *places, int n)
{
    int size = 1;
    while (size < n && places[size].node_id == places[0].node_id)
        size++;
    return size;
}

/* Name the first node, in rank order, whose ranks the counts do not fit. */
static stepaf_status_t check_nodes(const struct stepaf_split *split,
                                   const struct stepaf_split_rank *ranks,
                                   const struct place *places, int size)
{
    const struct place *first = NULL;
    int its_size = 0;

    for (int at = 0, n; at < size; at += n) {
        n = node_size(&places[at], size - at);
        if (attention_of(split, n) >= 0 || (first && first->rank < places[at].rank))
            continue;
        first = &places[at];
        its_size = n;
    }
    return first ? refuse_node(split, ranks[first->rank].host, its_size) : STEPAF_OK;
}

stepaf_status_t stepaf_split_deal(const struct stepaf_split *split,
                                  const struct stepaf_split_rank *ranks, int size, uint8_t *roles_p)
{
    bool by_node = split->kind == STEPAF_SPLIT_NODES;
    struct place *places;
    stepaf_status_t status = STEPAF_OK;

    if (split->kind == STEPAF_SPLIT_MAP) {
        memcpy(roles_p, split->map, (size_t)size);
        return STEPAF_OK;
    }
    places = malloc((size_t)size * sizeof *places);
    if (!places)
        return stepaf_error_no_memory(STEPAF_PHASE_INIT);
    for (int r = 0; r < size; r++)
        places[r] = (struct place){by_node ? ranks[r].node_id : 0, r};
    qsort(places, (size_t)size, sizeof *places, by_node_and_rank);
    if (by_node)
        status = check_nodes(split, ranks, places, size);
    else if (attention_of(split, size) < 0)
        status = refuse_job(split, size);
    for (int at = 0, n; !status && at < size; at += n) {
        n = node_size(&places[at], size - at);
        deal_roles(split, &places[at], n, roles_p);
    }
    free(places);
    return status;
}
