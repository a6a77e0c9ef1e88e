/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the floor of UCX: shared by ucx.c, which plans messages and connects,
 * ucx_worker.c, which opens UCX, and ucx_run.c, the loops. */
#ifndef PERF_UCX_STATE_H
#define PERF_UCX_STATE_H

#include <ucp/api/ucp.h>

#include "parts.h"
#include "ucx.h"

/* Up to this many bytes a message is a header alone, with a copy of them: UCX has a shorter path
 * for that. */
enum { PERF_UCX_ADDRESS = 2048, PERF_UCX_ID = 0, PERF_UCX_SMALL = 512 };

/* The header of an active message. */
struct perf_ucx_head {
    uint32_t sender; /* its index in its role */
    uint16_t place, part;
};

/* The next message of an endless sequence, in which each stage of each turn has one message for
 * each place. */
struct perf_ucx_turn {
    unsigned place;
    int stage;
};

/* What is sent or received for one place of the window. */
struct perf_ucx_message {
    struct perf_parts out, in;
    struct perf_ucx_head heads[PERF_MAX_PUSH];
    char small[PERF_MAX_PUSH][sizeof(struct perf_ucx_head) + PERF_UCX_SMALL];
};

struct perf_ucx_conn {
    struct perf_ucx *ucx;
    ucp_ep_h ep;
    struct perf_ucx_message *messages;                         /* by place */
    int in_parts[PERF_MAX_STAGES], out_parts[PERF_MAX_STAGES]; /* else an empty message */
    struct perf_ucx_turn in, out; /* of the incoming message; FFN: of the next answer */
    unsigned landed;              /* parts of it */
    uint64_t arrived, taken;      /* messages of the peer, total; taken: answered, or waited for */
    uint64_t left;                /* FFN: messages outstanding in this block */
};

/* UCX, looked up as the library does. */
#define PERF_UCX_CALLS(CALL)         \
    CALL(init_version)               \
    CALL(cleanup)                    \
    CALL(worker_create)              \
    CALL(worker_destroy)             \
    CALL(worker_query)               \
    CALL(worker_release_address)     \
    CALL(worker_progress)            \
    CALL(worker_set_am_recv_handler) \
    CALL(ep_create)                  \
    CALL(ep_flush_nbx)               \
    CALL(ep_close_nbx)               \
    CALL(am_send_nbx)                \
    CALL(am_recv_data_nbx)           \
    CALL(request_free)

struct perf_ucx_library {
#define CALL(name) __typeof__(ucp_##name) *name;
    PERF_UCX_CALLS(CALL)
#undef CALL
    const char *(*status_string)(ucs_status_t status);
};

struct perf_ucx {
    const struct perf_case *c;
    const struct perf_place *place;
    const struct perf_buffers *buffers;
    struct perf_ucx_library calls;
    ucp_context_h context;
    ucp_worker_h worker;
    int recv_each;
    unsigned spins; /* polls before a rank yields */
    unsigned under_way;
    ucs_status_t failed;
    int n_conns;
    struct perf_ucx_conn *conns; /* by rank of the other role */
    int n_used;
    struct perf_ucx_conn **used; /* that take part: all but FFN ranks without a slice */
    struct perf_ucx_message *messages;
};

/* What a rank sends to its peers about its worker. */
struct perf_ucx_end {
    uint32_t bytes;
    uint8_t address[PERF_UCX_ADDRESS];
};

/* Open UCX. -1 with a sentence; what was opened stays for perf_ucx_worker_close. */
int perf_ucx_worker_open(struct perf_ucx *ucx, struct perf_ucx_end *end_p);
void perf_ucx_worker_close(struct perf_ucx *ucx);
/* Make an endpoint to a peer's worker. */
int perf_ucx_worker_connect(struct perf_ucx *ucx, const struct perf_ucx_end *end, ucp_ep_h *ep_p);

/* ucx_run.c: UCX's callback for a message. */
ucs_status_t perf_ucx_take(void *arg, const void *header, size_t header_bytes, void *data,
                           size_t bytes, const ucp_am_recv_param_t *param);

#endif
