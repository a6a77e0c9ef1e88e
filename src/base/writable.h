/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the caller may be unmapped or read-only by now. A copy there, or from there, by the
 * library would be a SIGSEGV in a rank that has done nothing wrong at that moment; the kernel only
 * says so. */
#ifndef STEPAF_BASE_WRITABLE_H
#define STEPAF_BASE_WRITABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether all pages of a range can be written to. What the range holds is lost: ask right before a
 * copy to it. A system call a page. */
bool stepaf_is_writable(uint8_t *at, size_t bytes);

/* Whether all pages of a range can be read. A system call a page. */
bool stepaf_is_readable(const void *at, size_t bytes);

/* Why a peer is lost: memory of this rank, or memory of the peer, cannot be written to. */
extern const char stepaf_unwritable_own[];
extern const char stepaf_unwritable_peers[];

#endif
