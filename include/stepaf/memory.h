/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that tensors live in. */
#ifndef STEPAF_MEMORY_H
#define STEPAF_MEMORY_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Allocate memory that peers on the node can reach directly: pushes into it are one copy.
 *
 *  The memory is registered, zeroed and aligned to a page. Peers can reach it after the next
 *  commit; as the source of a push or a response it can be used at once.
 *  @param bytes  1 .. 2^40
 *  @param kind   STEPAF_MEM_HOST
 *  @param ptr_p  owned by the context: stepaf_free or stepaf_finalize ends it.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID; STEPAF_ERR_NO_MEMORY;
 *  STEPAF_ERR_UNSUPPORTED (kind); STEPAF_ERR_TRANSPORT (a device cannot register it). Nothing
 *  changed on failure. Does not block on peers. */
STEPAF_API stepaf_status_t stepaf_alloc(stepaf_context_h ctx, size_t bytes, stepaf_mem_kind_t kind,
                                        void **ptr_p);

/** Free memory from stepaf_alloc.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_UNREGISTERED (not the start of an
 *  allocation); STEPAF_ERR_STATE (a plan or a receive registration uses it). Nothing changed on
 *  failure. Peers' mappings end at the next commit. */
STEPAF_API stepaf_status_t stepaf_free(stepaf_context_h ctx, void *ptr);

/** Register memory of the caller's own, so that tensors may lie in it.
 *
 *  On the node, peers reach such pages by cross-memory attach where the kernel permits it, else
 *  through a small ring; stepaf_alloc is faster.
 *  @param ptr    start; must not overlap another registration.
 *  @param bytes  1 .. 2^40; stays the caller's and mapped until stepaf_deregister.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (NULL, size, overlap);
 *  STEPAF_ERR_NO_MEMORY; STEPAF_ERR_TRANSPORT (a device cannot register it: often a limit of
 *  locked memory). Nothing changed on failure. Does not block on peers. */
STEPAF_API stepaf_status_t stepaf_register(stepaf_context_h ctx, void *ptr, size_t bytes);

/** End a registration.
 *  @param ptr  as given to stepaf_register.
 *  @return as stepaf_free. */
STEPAF_API stepaf_status_t stepaf_deregister(stepaf_context_h ctx, void *ptr);

#ifdef __cplusplus
}
#endif
#endif
