/* SPDX-License-Identifier: Apache-2.0 */
#include "core/table.h"

#include <stdlib.h>

static bool grow_table(struct stepaf_table *table)
{
    uint32_t capacity = table->capacity ? 2 * table->capacity : 16;
    void **objects = realloc(table->objects, capacity * sizeof(*objects));

    if (!objects)
        return false;
    table->objects = objects;
    table->capacity = capacity;
    return true;
}

bool stepaf_table_add(struct stepaf_table *table, void *object, uint32_t limit, uint32_t *index_p)
{
    uint32_t index = table->lowest;

    if (table->n_used >= limit)
        return false;
    while (index < table->n && table->objects[index])
        index++;
    if (index == table->capacity && !grow_table(table))
        return false;
    if (index == table->n)
        table->n++;
    table->lowest = index + 1;
    table->objects[index] = object;
    table->n_used++;
    *index_p = index;
    return true;
}

void stepaf_table_remove(struct stepaf_table *table, uint32_t index)
{
    table->objects[index] = NULL;
    table->n_used--;
    if (index < table->lowest)
        table->lowest = index;
}

void stepaf_table_free(struct stepaf_table *table)
{
    free(table->objects);
    *table = (struct stepaf_table){0};
}
