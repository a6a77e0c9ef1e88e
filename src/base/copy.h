/* SPDX-License-Identifier: Apache-2.0 */
/* Copy few bytes, of a number not known at compile time. */
#ifndef STEPAF_BASE_COPY_H
#define STEPAF_BASE_COPY_H

#include <stddef.h>
#include <string.h>

/* Like memcpy(). Where gcc finds a bound of @a bytes, such as 512, it expands memcpy() to an inline
 * "rep movs", whose start-up alone takes longer than this copy. */
static inline void stepaf_copy(void *to, const void *from, size_t bytes)
{
    __asm__("" : "+r"(bytes));
    memcpy(to, from, bytes);
}

#endif
