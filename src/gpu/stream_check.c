/* SPDX-License-Identifier: Apache-2.0 */
/* Check stream plans at the commit: whether the adverts of all ranks fit together. */
#include "gpu/stream_advert.h"

#include <stdlib.h>

/* What the check needs to know of a rank. */
struct party {
    const struct stepaf_advert *said;
    struct stepaf_stream_advert stream_advert;
    uint32_t index; /* among the peers of ranks of the other role, as mesh.h counts */
    bool *named;    /* per key as declared: a stream plan names it; NULL: not asked for */
};

static uint32_t index_in_lane(const struct stepaf_advert *adverts, int rank)
{
    uint32_t index = 0;

    for (int r = 0; r < rank; r++)
        index += adverts[r].role == adverts[rank].role && adverts[r].lane == adverts[rank].lane;
    return index;
}

/* Check that everything that @a plan of @a one sends to @a other fits into @a its plan there. */
static stepaf_status_t judge_sizes(const struct party *one,
                                   const struct stepaf_stream_advert_plan *plan,
                                   const struct party *other,
                                   const struct stepaf_stream_advert_plan *its)
{
    bool pushes = one->said->role == STEPAF_ATTENTION;
    uint32_t n = pushes ? plan->n_push : plan->n_pull;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t bytes = stepaf_stream_advert_size(plan, n, other->index, i);
        uint32_t room = stepaf_stream_advert_room(its, n, one->index, i);
        if (bytes > room)
            return stepaf_error_set(
                STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
                "key %llu: stream plan %u of world rank %d sends %u bytes, but that of world rank "
                "%d has room for %u",
                (unsigned long long)(pushes ? plan->push[i]
                                            : stepaf_stream_advert_pull(plan, other->index, i)),
                plan->number, one->said->world_rank, bytes, other->said->world_rank, room);
    }
    return STEPAF_OK;
}

/* Return whether all keys of a plan are in host memory at rank @a other. That rank may then have an
 * ordinary plan, which is not advertised before the commit is over. */
static bool is_for_host(const struct stepaf_stream_advert_plan *plan, uint32_t peer,
                        const struct stepaf_advert *other)
{
    const struct stepaf_advert_key_row *key;
    bool is = true;

    for (uint32_t i = 0; i < plan->n_push + plan->n_pull; i++) {
        key = stepaf_advert_key(
            other, i < plan->n_push ? plan->push[i]
                                    : stepaf_stream_advert_pull(plan, peer, i - plan->n_push));
        is = is && (!key || key->mem_kind == STEPAF_MEM_HOST);
    }
    return is;
}

/* Check that every plan of @a one has its counterpart at @a other. */
static stepaf_status_t judge_pair(const struct party *one, const struct party *other)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t i = 0; i < one->stream_advert.n_plans && !status; i++) {
        const struct stepaf_stream_advert_plan *plan = &one->stream_advert.plans[i];
        const struct stepaf_stream_advert_plan *match = stepaf_stream_advert_match(
            &other->stream_advert, one->index, &one->stream_advert, plan, other->index);
        if (match)
            status = judge_sizes(one, plan, other, match);
        else if (!stepaf_adverts_proxied(one->said, other->said) ||
                 !is_for_host(plan, other->index, other->said))
            status = stepaf_error_set(
                STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
                "world rank %d has a stream plan (%u) that pushes %u and pulls %u keys, the first "
                "%llu, but world rank %d has none of the same keys and depth",
                one->said->world_rank, plan->number, plan->n_push, plan->n_pull,
                (unsigned long long)plan->push[0], other->said->world_rank);
    }
    return status;
}

static void name(const struct party *party, uint64_t id)
{
    const struct stepaf_advert_key_row *key = stepaf_advert_key(party->said, id);

    if (key)
        party->named[key - party->said->keys] = true;
}

static stepaf_status_t find_named(struct party *party)
{
    party->named = calloc(party->said->n_keys + 1, sizeof(*party->named));
    if (!party->named)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (uint32_t i = 0; i < party->stream_advert.n_plans; i++) {
        const struct stepaf_stream_advert_plan *plan = &party->stream_advert.plans[i];
        for (uint32_t k = 0; k < plan->n_push; k++)
            name(party, plan->push[k]);
        for (uint32_t p = 0; p < plan->n_peers; p++)
            for (uint32_t k = 0; k < plan->n_pull; k++)
                name(party, stepaf_stream_advert_pull(plan, p, k));
    }
    return STEPAF_OK;
}

static const char *kind_name(uint32_t mem_kind)
{
    return mem_kind == STEPAF_MEM_CUDA ? "GPU" : "host";
}

/* A key may be of another kind at each end in two cases: stream plans transfer it from kind to
 * kind, on both ends or with one end proxied; or no stream plan names it, as links write where the
 * receiver says. */
static stepaf_status_t judge_kinds(const struct party *one, const struct party *other)
{
    for (uint32_t k = 0; k < one->said->n_keys; k++) {
        const struct stepaf_advert_key_row *a = &one->said->keys[k];
        const struct stepaf_advert_key_row *b = stepaf_advert_key(other->said, a->id);
        if (!b || a->mem_kind == b->mem_kind)
            continue;
        bool one_has = one->named[k], other_has = other->named[b - other->said->keys];
        bool proxied = stepaf_adverts_proxied(one->said, other->said);
        if (one_has == other_has || (proxied && (one_has || other_has)))
            continue;
        return stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
                                "key %llu: world rank %d declares %s memory, world rank %d %s "
                                "memory: this requires stream plans at both, or at the one with "
                                "GPU memory and STEPAF_CUDA_PROXY=always at either",
                                (unsigned long long)a->id, one->said->world_rank,
                                kind_name(a->mem_kind), other->said->world_rank,
                                kind_name(b->mem_kind));
    }
    return STEPAF_OK;
}

static stepaf_status_t judge_pairs(const struct party *parties, int n, bool kinds_differ)
{
    stepaf_status_t status = STEPAF_OK;

    for (const struct party *one = parties; one < parties + n && !status; one++)
        for (const struct party *other = parties; other < parties + n && !status; other++) {
            if (one->said->role == other->said->role || one->said->lane != other->said->lane ||
                one->said->absent || other->said->absent)
                continue;
            if (kinds_differ)
                status = judge_kinds(one, other);
            if (!status)
                status = judge_pair(one, other);
        }
    return status;
}

stepaf_status_t stepaf_stream_adverts_check(const struct stepaf_advert *adverts, int n,
                                            bool kinds_differ)
{
    struct party *parties = calloc((size_t)n, sizeof(*parties));
    stepaf_status_t status = STEPAF_OK;
    bool any = kinds_differ;

    if (!parties)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (int r = 0; r < n && !status; r++) {
        parties[r].said = &adverts[r];
        if (adverts[r].absent)
            continue;
        status = stepaf_stream_advert_read(adverts[r].streams, adverts[r].role,
                                           adverts[r].world_rank, &parties[r].stream_advert);
        any = any || parties[r].stream_advert.n_plans;
    }
    for (int r = 0; any && r < n && !status; r++) {
        parties[r].index = index_in_lane(adverts, r);
        if (kinds_differ && !adverts[r].absent)
            status = find_named(&parties[r]);
    }
    if (any && !status)
        status = judge_pairs(parties, n, kinds_differ);
    for (int r = 0; r < n; r++) {
        stepaf_stream_advert_free(&parties[r].stream_advert);
        free(parties[r].named);
    }
    free(parties);
    return status;
}
