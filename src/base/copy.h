/* SPDX-License-Identifier: Apache-2.0 */
/* Copying of few bytes, as many as are not known before. */
#ifndef STEPAF_BASE_COPY_H
#define STEPAF_BASE_COPY_H

#include <stddef.h>
#include <string.h>

/* As memcpy(). Where gcc finds a bound of @a bytes, such as 512, its memcpy() is "rep movs" in
 * place, of which the beginning alone takes longer than to copy as much. */
static inline void stepaf_copy(void *to, const void *from, size_t bytes)
{
    __asm__("" : "+r"(bytes));
    memcpy(to, from, bytes);
}

#endif
