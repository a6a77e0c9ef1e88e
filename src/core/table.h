/* SPDX-License-Identifier: Apache-2.0 */
/* Numbered objects, and the handles that name them.
 *
 * A handle is not an address but a number: generation (32 bits), kind (4), context (6), index
 * (22). Every part is compared before it is used, so that callers can safely pass any value. */
#ifndef STEPAF_CORE_TABLE_H
#define STEPAF_CORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stepaf_handle_kind {
    STEPAF_HANDLE_CONTEXT = 1,
    STEPAF_HANDLE_PLAN = 2,
    STEPAF_HANDLE_OPERATION = 3,
    STEPAF_HANDLE_BATCH = 4,
    STEPAF_HANDLE_RESPONSE = 5 /* a batch, as the request of its response */
};

enum { STEPAF_HANDLE_INDEX_BITS = 22, STEPAF_HANDLE_CONTEXTS = 64 };

_Static_assert(sizeof(void *) == 8, "handles are 64 bits");

static inline void *stepaf_handle_make(enum stepaf_handle_kind kind, uint32_t context,
                                       uint32_t index, uint32_t generation)
{
    return (void *)(uintptr_t)((uint64_t)generation << 32 | (uint64_t)kind << 28 |
                               (uint64_t)context << STEPAF_HANDLE_INDEX_BITS | index);
}

/* Return the part of a handle without the generation. */
static inline uint32_t stepaf_handle_name(enum stepaf_handle_kind kind, uint32_t context,
                                          uint32_t index)
{
    return (uint32_t)(uintptr_t)stepaf_handle_make(kind, context, index, 0);
}

/* Combine both parts. If an object stores them side by side, this is one load. */
static inline void *stepaf_handle_of(uint32_t name, uint32_t generation)
{
    return (void *)(uintptr_t)((uint64_t)generation << 32 | name);
}

static inline uint32_t stepaf_handle_generation(const void *handle)
{
    return (uint32_t)((uintptr_t)handle >> 32);
}

static inline uint32_t stepaf_handle_kind(const void *handle)
{
    return (uint32_t)(uintptr_t)handle >> 28;
}

static inline uint32_t stepaf_handle_context(const void *handle)
{
    return (uint32_t)(uintptr_t)handle >> STEPAF_HANDLE_INDEX_BITS & (STEPAF_HANDLE_CONTEXTS - 1);
}

static inline uint32_t stepaf_handle_index(const void *handle)
{
    return (uint32_t)(uintptr_t)handle & ((1u << STEPAF_HANDLE_INDEX_BITS) - 1);
}

/* Objects by number. Numbers of removed objects are reused. */
struct stepaf_table {
    void **objects; /* NULL: free */
    uint32_t n;     /* numbers in use or used before */
    uint32_t capacity;
    uint32_t n_used;
    uint32_t *freed; /* numbers to reuse, the last one first */
    uint32_t n_freed;
    /* the last one given out: no two objects share number and generation */
    uint32_t last_generation;
    uint32_t not_ours; /* last generation of earlier contexts in this context's place */
    bool wrapped;      /* generations have wrapped: not_ours is meaningless */
};

/* Return a generation that was not given out for a long time; never 0. */
static inline uint32_t stepaf_table_generation(struct stepaf_table *table)
{
    if (__builtin_expect(!++table->last_generation, 0)) {
        table->last_generation = 1;
        table->wrapped = true;
    }
    return table->last_generation;
}

/* Begin after @a last, the last generation given out by another context. */
static inline void stepaf_table_begin(struct stepaf_table *table, uint32_t last)
{
    table->last_generation = last;
    table->not_ours = last;
}

/* Return how many generations have been given out. */
static inline uint32_t stepaf_table_given(const struct stepaf_table *table)
{
    return table->last_generation - table->not_ours;
}

/* Add @a object. Return false if there are @a limit objects already, or if out of memory. */
bool stepaf_table_add(struct stepaf_table *table, void *object, uint32_t limit, uint32_t *index_p);
void stepaf_table_remove(struct stepaf_table *table, uint32_t index);
void stepaf_table_free(struct stepaf_table *table);

static inline void *stepaf_table_get(const struct stepaf_table *table, uint32_t index)
{
    return index < table->n ? table->objects[index] : NULL;
}

#endif
