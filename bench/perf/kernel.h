/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes share a kernel and its namespaces. */
#ifndef PERF_KERNEL_H
#define PERF_KERNEL_H

#include <stdint.h>

/* Return a number that processes have in common if they run under the same boot of the same
 * kernel, in the same namespace of kind @a kind ("pid", "net"). */
uint64_t perf_kernel_id(const char *kind);

/* Hash @a text into @a hash. */
uint64_t perf_kernel_hash(uint64_t hash, const char *text);

#endif
