/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_BASE_SHORTEN_H
#define STEPAF_BASE_SHORTEN_H

#include <string.h>

/* Copy @a text into @a short_p, of @a capacity (at least 8) bytes. Text that is too long gets ".."
 * in the middle: names often differ at their ends. */
static inline void stepaf_shorten(const char *text, char *short_p, size_t capacity)
{
    size_t bytes = strlen(text), head = (capacity - 3) / 2, tail = capacity - 3 - head;

    if (bytes < capacity) {
        memcpy(short_p, text, bytes + 1);
        return;
    }
    memcpy(short_p, text, head);
    short_p[head] = short_p[head + 1] = '.';
    memcpy(short_p + head + 2, text + bytes - tail, tail + 1);
}

#endif
