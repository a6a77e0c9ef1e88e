/* SPDX-License-Identifier: Apache-2.0 */
/* The check of all adverts. Each rank applies the same rules, and so reaches the same outcome. */
#define _GNU_SOURCE 1 /* tdestroy */

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/feature.h"
#include "wireup/advert.h"

/* One property of a key, as text. */
struct property {
    char text[64];
};

static struct property number(const char *what, uint32_t value)
{
    struct property property;

    (void)snprintf(property.text, sizeof(property.text), "%s %u", what, value);
    return property;
}

static struct property direction(const struct stepaf_advert_key_row *row)
{
    struct property property;

    (void)snprintf(property.text, sizeof(property.text), "%s",
                   row->direction == STEPAF_PUSH ? "a push" : "a pull");
    return property;
}

static struct property dtype(const struct stepaf_advert_key_row *row)
{
    struct property property;

    (void)snprintf(property.text, sizeof(property.text), "elements of %s",
                   stepaf_dtype_name((stepaf_dtype_t)row->dtype));
    return property;
}

static struct property shape(const struct stepaf_advert_key_row *row)
{
    struct property property = {.text = "shape ("};
    size_t length = strlen(property.text);

    for (uint32_t i = 0; i < row->ndim && length < sizeof(property.text); i++)
        length += (size_t)snprintf(property.text + length, sizeof(property.text) - length, "%s%lld",
                                   i ? ", " : "", (long long)row->shape[i]);
    if (length < sizeof(property.text) - 1)
        (void)strcat(property.text, ")");
    return property;
}

/* Return the rank to name in a failure that two ranks cause together, for one of them or a
 * third. */
static struct stepaf_who who_of_two(const struct stepaf_advert *one,
                                    const struct stepaf_advert *other, int own_rank)
{
    const struct stepaf_advert *it = other->world_rank == own_rank ? one : other;

    return (struct stepaf_who){it->role, -1, it->world_rank};
}

/* Two ranks' adverts of one key, and the rank that compares them. */
struct comparison {
    const struct stepaf_advert *one, *other;
    uint64_t id;
    int own_rank;
};

static stepaf_status_t differ(const struct comparison *of, struct property a, struct property b)
{
    return stepaf_error_set_peer(
        STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT, who_of_two(of->one, of->other, of->own_rank),
        "key %llu: world rank %d declares %s, world rank %d %s", (unsigned long long)of->id,
        of->one->world_rank, a.text, of->other->world_rank, b.text);
}

static bool shapes_differ(const struct stepaf_advert_key_row *a,
                          const struct stepaf_advert_key_row *b)
{
    return a->ndim != b->ndim || memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) != 0;
}

/* Compare two adverts of one key. Kinds of memory may differ, within limits. */
static stepaf_status_t compare(const struct comparison *of, const struct stepaf_advert_key_row *a,
                               const struct stepaf_advert_key_row *b, bool *kinds_differ_p)
{
    if (a->direction != b->direction)
        return differ(of, direction(a), direction(b));
    if (a->dtype != b->dtype)
        return differ(of, dtype(a), dtype(b));
    *kinds_differ_p = *kinds_differ_p || a->mem_kind != b->mem_kind;
    if (shapes_differ(a, b))
        return differ(of, shape(a), shape(b));
    if (a->max_bytes != b->max_bytes)
        return differ(of, number("bytes", a->max_bytes), number("bytes", b->max_bytes));
    if (a->depth != b->depth)
        return differ(of, number("depth", a->depth), number("depth", b->depth));
    return STEPAF_OK;
}

/* A key of a rank, with which the other ranks' are compared; or a key of a lane, with the number of
 * FFN adverts of the lane that have it. Adverts that are the same as another one do not count. */
struct known_key {
    uint64_t id;
    uint32_t lane; /* UINT32_MAX: of all lanes */
    uint32_t n;
    const struct stepaf_advert *advert; /* the first advert that has it */
    const struct stepaf_advert_key_row *row;
};

/* The keys of all ranks, so that no rank's keys must be searched in every other rank's. */
struct known_keys {
    struct known_key *keys;
    size_t n;
    void *tree;
    uint32_t *n_ffn; /* FFN adverts, by lane */
    int own_rank;    /* of the rank that checks */
};

static int compare_known(const void *one, const void *other)
{
    const struct known_key *a = one, *b = other;

    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return (a->lane > b->lane) - (a->lane < b->lane);
}

/* Find a key, or add it and set *is_new_p. Return NULL if out of memory. */
static struct known_key *know(struct known_keys *known, uint64_t id, uint32_t lane, bool *is_new_p)
{
    struct known_key *own = &known->keys[known->n];

    *own = (struct known_key){.id = id, .lane = lane};
    struct known_key *const *found = tsearch(own, &known->tree, compare_known);
    *is_new_p = found && *found == own;
    known->n += *is_new_p;
    return found ? *found : NULL;
}

static bool counts(const struct stepaf_advert *advert)
{
    return !advert->absent && !advert->same_as && advert->role == STEPAF_FFN;
}

/* Count the keys of the FFN ranks, lane by lane. */
static stepaf_status_t know_lanes(struct known_keys *known, const struct stepaf_advert *adverts,
                                  int n)
{
    bool is_new;

    for (int r = 0; r < n; r++) {
        if (!counts(&adverts[r]))
            continue;
        known->n_ffn[adverts[r].lane]++;
        for (uint32_t k = 0; k < adverts[r].n_keys; k++) {
            struct known_key *key = know(known, adverts[r].keys[k].id, adverts[r].lane, &is_new);
            if (!key)
                return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
            key->n++;
        }
    }
    return STEPAF_OK;
}

static stepaf_status_t refuse_push(const struct stepaf_advert *adverts,
                                   const struct stepaf_advert *own, uint64_t id, int own_rank)
{
    const struct stepaf_advert *ffn = adverts;

    while (!counts(ffn) || ffn->lane != own->lane || stepaf_advert_key(ffn, id))
        ffn++;
    return stepaf_error_set_peer(
        STEPAF_ERR_KEY, STEPAF_PHASE_COMMIT, who_of_two(own, ffn, own_rank),
        "key %llu is pushed by world rank %d, but not declared by FFN world rank %d",
        (unsigned long long)id, own->world_rank, ffn->world_rank);
}

/* Check that every key that rank @a own pushes is declared at every FFN rank of its lane. */
static stepaf_status_t check_pushes(const struct known_keys *known,
                                    const struct stepaf_advert *adverts,
                                    const struct stepaf_advert *own)
{
    for (uint32_t k = 0; k < own->n_keys; k++) {
        struct known_key probe = {.id = own->keys[k].id, .lane = own->lane};
        if (own->keys[k].direction != STEPAF_PUSH)
            continue;
        struct known_key *const *found = tfind(&probe, &known->tree, compare_known);
        if ((found ? (*found)->n : 0) != known->n_ffn[own->lane])
            return refuse_push(adverts, own, probe.id, known->own_rank);
    }
    return STEPAF_OK;
}

/* Compare a rank's keys with those of the first rank that has the key, and check that pushes are
 * received everywhere. */
static stepaf_status_t check_keys(struct known_keys *known, const struct stepaf_advert *adverts,
                                  const struct stepaf_advert *own, bool *kinds_differ_p)
{
    if (own->same_as)
        return STEPAF_OK; /* checked with the advert that is the same */
    for (uint32_t k = 0; k < own->n_keys; k++) {
        stepaf_status_t status = STEPAF_OK;
        bool is_new;
        struct known_key *key = know(known, own->keys[k].id, UINT32_MAX, &is_new);
        if (!key)
            return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        if (is_new) {
            key->advert = own;
            key->row = &own->keys[k];
        } else {
            const struct comparison of = {key->advert, own, own->keys[k].id, known->own_rank};
            status = compare(&of, key->row, &own->keys[k], kinds_differ_p);
        }
        if (status)
            return status;
    }
    return own->role == STEPAF_ATTENTION ? check_pushes(known, adverts, own) : STEPAF_OK;
}

/* All elements of the tree are in one block. */
static void free_none(void *key)
{
    (void)key;
}

static stepaf_status_t check_all_keys(const struct stepaf_advert *adverts, int n, int own_rank,
                                      bool *kinds_differ_p)
{
    struct known_keys known = {.own_rank = own_rank};
    stepaf_status_t status = STEPAF_OK;
    size_t room = 1, n_lanes = n > 0 ? (size_t)n : 1; /* maximum */

    for (int r = 0; r < n; r++) /* each once for its lane, once for all */
        room += adverts[r].same_as ? 0 : 2 * (size_t)adverts[r].n_keys;
    known.keys = malloc(room * sizeof(*known.keys));
    known.n_ffn = calloc(n_lanes, sizeof(*known.n_ffn));
    status = known.keys && known.n_ffn ? know_lanes(&known, adverts, n)
                                       : stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (int r = 0; r < n && !status; r++)
        status = check_keys(&known, adverts, &adverts[r], kinds_differ_p);
    tdestroy(known.tree, free_none);
    free(known.keys);
    free(known.n_ffn);
    return status;
}

stepaf_status_t stepaf_adverts_check(const struct stepaf_advert *adverts, int n, int own_rank,
                                     const struct stepaf_feature_ops *feature)
{
    const struct stepaf_advert *first = NULL;
    bool changed = false, kinds_differ = false;
    stepaf_status_t status;

    for (int r = 0; r < n; r++) {
        const struct stepaf_advert *advert = &adverts[r];
        if (advert->absent) {
            changed = changed || advert->was_member;
            continue;
        }
        first = first ? first : advert;
        if (advert->status)
            return r == own_rank
                       ? stepaf_error_set(advert->status, STEPAF_PHASE_COMMIT, "%s", advert->text)
                       : stepaf_error_set_peer(
                             advert->status, STEPAF_PHASE_COMMIT, who_of_two(advert, advert, -1),
                             "world rank %d: %.280s", advert->world_rank, advert->text);
        if (advert->epoch != first->epoch)
            return stepaf_error_set_peer(
                STEPAF_ERR_MISMATCH, STEPAF_PHASE_COMMIT, who_of_two(first, advert, own_rank),
                "world rank %d is in epoch %u, world rank %d in %u", advert->world_rank,
                advert->epoch, first->world_rank, first->epoch);
        changed = changed || advert->changed || !advert->epoch;
    }
    if (!changed)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_COMMIT,
                                "nothing has changed on any rank since the last commit");
    status = check_all_keys(adverts, n, own_rank, &kinds_differ);
    if (status)
        return status;
    return feature->check(adverts, n, kinds_differ);
}
