/* SPDX-License-Identifier: Apache-2.0 */
/* UCX, loaded at run time. Where UCX is missing, only this transport is not available. */
#ifndef STEPAF_TRANSPORT_UCX_LIBRARY_H
#define STEPAF_TRANSPORT_UCX_LIBRARY_H

#include <ucp/api/ucp.h>

/* The functions of UCX that are called. */
#define STEPAF_UCX_CALLS(CALL)       \
    CALL(get_version)                \
    CALL(init_version)               \
    CALL(cleanup)                    \
    CALL(context_query)              \
    CALL(context_print_info)         \
    CALL(worker_create)              \
    CALL(worker_destroy)             \
    CALL(worker_query)               \
    CALL(worker_release_address)     \
    CALL(worker_progress)            \
    CALL(worker_set_am_recv_handler) \
    CALL(ep_create)                  \
    CALL(ep_close_nbx)               \
    CALL(ep_flush_nbx)               \
    CALL(ep_print_info)              \
    CALL(mem_map)                    \
    CALL(mem_unmap)                  \
    CALL(am_send_nbx)                \
    CALL(am_recv_data_nbx)           \
    CALL(request_free)

struct stepaf_ucx_library {
#define CALL(name) __typeof__(ucp_##name) *name;
    STEPAF_UCX_CALLS(CALL)
#undef CALL
    const char *(*status_string)(ucs_status_t status);
};

/* Return the library, or its replacement in tests. NULL: there is none; @a reason says why. */
const struct stepaf_ucx_library *stepaf_ucx_library(char *reason);

extern const struct stepaf_ucx_library *stepaf_ucx_library_fake; /* set by tests; else NULL */

#endif
