/* SPDX-License-Identifier: Apache-2.0 */
/* Check memory of the caller, which may be unmapped or read-only by now. A copy to or from it by
 * the library would be a SIGSEGV in a rank that has done nothing wrong at that moment; the kernel
 * reports an error instead. */
#ifndef STEPAF_BASE_WRITABLE_H
#define STEPAF_BASE_WRITABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return whether all pages of a range can be written to. The contents of the range are lost: call
 * directly before a copy to it. One system call per page. */
bool stepaf_is_writable(uint8_t *at, size_t bytes);

/* Return whether all pages of a range can be read. One system call per page. */
bool stepaf_is_readable(const void *at, size_t bytes);

/* Why a peer is lost: memory of this rank, or memory of the peer, cannot be written to. */
extern const char stepaf_unwritable_own[];
extern const char stepaf_unwritable_peers[];

#endif
