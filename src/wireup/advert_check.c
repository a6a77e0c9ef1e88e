/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on what all ranks declare: every rank judges the same, and so comes to the same. */
#include "core/feature.h"
#include "wireup/advert.h"

static stepaf_status_t differ(const char *what, const struct stepaf_advert *one,
                              const struct stepaf_advert *other, uint64_t id, uint32_t a,
                              uint32_t b)
{
    return stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
                            "key %llu: world rank %d declares %s %u, world rank %d declares %u",
                            (unsigned long long)id, one->world_rank, what, a, other->world_rank, b);
}

/* Compare two adverts of one key. The kind of memory is each rank's own affair, within limits. */
static stepaf_status_t compare(const struct stepaf_advert *one,
                               const struct stepaf_advert_key_row *a,
                               const struct stepaf_advert *other,
                               const struct stepaf_advert_key_row *b, bool *kinds_differ_p)
{
    if (a->direction != b->direction)
        return differ("direction", one, other, a->id, a->direction, b->direction);
    if (a->dtype != b->dtype)
        return differ("dtype", one, other, a->id, a->dtype, b->dtype);
    *kinds_differ_p = *kinds_differ_p || a->mem_kind != b->mem_kind;
    if (a->max_bytes != b->max_bytes)
        return differ("bytes", one, other, a->id, a->max_bytes, b->max_bytes);
    if (a->depth != b->depth)
        return differ("depth", one, other, a->id, a->depth, b->depth);
    if (a->ndim != b->ndim)
        return differ("dimensions", one, other, a->id, a->ndim, b->ndim);
    for (uint32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i])
            return differ("another dimension:", one, other, a->id, (uint32_t)a->shape[i],
                          (uint32_t)b->shape[i]);
    return STEPAF_OK;
}

/* See that what rank @a own pushes is declared at every FFN rank of its lane. */
static stepaf_status_t check_pushes(const struct stepaf_advert *adverts, int n,
                                    const struct stepaf_advert *own)
{
    for (int r = 0; r < n; r++) {
        const struct stepaf_advert *ffn = &adverts[r];
        if (ffn->role != STEPAF_FFN || ffn->same_as || ffn->lane != own->lane)
            continue;
        for (uint32_t k = 0; k < own->n_keys; k++)
            if (own->keys[k].direction == STEPAF_PUSH && !stepaf_advert_key(ffn, own->keys[k].id))
                return stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_COMMIT,
                                        "key %llu: world rank %d pushes it, but FFN world rank %d "
                                        "has not declared it",
                                        (unsigned long long)own->keys[k].id, own->world_rank,
                                        ffn->world_rank);
    }
    return STEPAF_OK;
}

/* Compare every rank's keys with the first rank's that has the key, and see that what is pushed
 * is received everywhere. */
static stepaf_status_t check_keys(const struct stepaf_advert *adverts, int n, int at,
                                  bool *kinds_differ_p)
{
    const struct stepaf_advert *own = &adverts[at];
    stepaf_status_t status;

    if (own->same_as)
        return STEPAF_OK; /* judged with that one */
    for (uint32_t k = 0; k < own->n_keys; k++) {
        const struct stepaf_advert_key_row *key = &own->keys[k];
        int first = 0;
        const struct stepaf_advert_key_row *its = NULL;
        for (; first < at && !its; first++)
            if (!adverts[first].same_as)
                its = stepaf_advert_key(&adverts[first], key->id);
        if (its && (status = compare(&adverts[first - 1], its, own, key, kinds_differ_p)))
            return status;
    }
    return own->role == STEPAF_ATTENTION ? check_pushes(adverts, n, own) : STEPAF_OK;
}

stepaf_status_t stepaf_adverts_check(const struct stepaf_advert *adverts, int n, int own_rank,
                                     const struct stepaf_feature_ops *feature)
{
    uint32_t epoch = adverts[0].epoch;
    bool changed = epoch == 0, kinds_differ = false;
    stepaf_status_t status;

    for (int r = 0; r < n; r++) {
        const struct stepaf_advert *advert = &adverts[r];
        if (advert->status)
            return r == own_rank
                       ? stepaf_error_set(advert->status, STEPAF_PHASE_COMMIT, "%s", advert->text)
                       : stepaf_error_set(advert->status, STEPAF_PHASE_COMMIT,
                                          "world rank %d: %.280s", advert->world_rank,
                                          advert->text);
        if (advert->epoch != epoch)
            return stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT,
                                    "world rank %d is in epoch %u, rank 0 in %u",
                                    advert->world_rank, advert->epoch, epoch);
        changed = changed || advert->changed;
    }
    if (!changed)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                "nothing has changed on any rank since the last commit");
    for (int r = 0; r < n; r++)
        if ((status = check_keys(adverts, n, r, &kinds_differ)))
            return status;
    return feature->check(adverts, n, kinds_differ);
}
