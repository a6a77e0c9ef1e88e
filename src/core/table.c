/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of numbered objects. */
#include "core/table.h"

#include <stdlib.h>

static bool grow_table(struct stepaf_table *table)
{
    uint32_t capacity = table->capacity ? 2 * table->capacity : 16;
    void **objects = realloc(table->objects, capacity * sizeof(*objects));
    uint32_t *freed = realloc(table->freed, capacity * sizeof(*freed));

    table->objects = objects ? objects : table->objects;
    table->freed = freed ? freed : table->freed;
    if (!objects || !freed)
        return false;
    table->capacity = capacity;
    return true;
}

bool stepaf_table_add(struct stepaf_table *table, void *object, uint32_t limit, uint32_t *index_p)
{
    uint32_t index;

    if (table->n_used >= limit)
        return false;
    if (!table->n_freed && table->n == table->capacity && !grow_table(table))
        return false;
    index = table->n_freed ? table->freed[--table->n_freed] : table->n++;
    table->objects[index] = object;
    table->n_used++;
    *index_p = index;
    return true;
}

void stepaf_table_remove(struct stepaf_table *table, uint32_t index)
{
    table->objects[index] = NULL;
    table->n_used--;
    table->freed[table->n_freed++] = index;
}

void stepaf_table_free(struct stepaf_table *table)
{
    free(table->objects);
    free(table->freed);
    *table = (struct stepaf_table){0};
}
