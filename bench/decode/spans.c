/* SPDX-License-Identifier: Apache-2.0 */
#include "spans.h"

#include <stdlib.h>

int spans_create(size_t capacity, struct spans *spans_p, struct reason *reason)
{
    struct spans spans = {.capacity = capacity};
    if (capacity && !(spans.ring = malloc(capacity * sizeof(spans.ring[0]))))
        return reason_no_memory(reason);
    *spans_p = spans;
    return 0;
}

void spans_destroy(struct spans *spans)
{
    free(spans->ring);
    *spans = (struct spans){0};
}
