/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the UCX that is made up: between ucx_fabric.c, its objects and table, and
 * ucx_fabric_wire.c, which has what is under way happen in some order. */
#ifndef STEPAF_TEST_UCX_FABRIC_INSIDE_H
#define STEPAF_TEST_UCX_FABRIC_INSIDE_H

#include "ucx_fabric.h"
#include "ucx_gpu.h"

enum {
    HANDLERS = STEPAF_UCX_QUICK + 1,
    WORKERS = 8,
    ENDPOINTS = 32,
    REGIONS = 64,
    SENDS = 4096,
    PARTS = 4,
    STEPS = 12,
    MARK = 0x75637866
};

/* UCX's types are of no known content: these are what pointers to them point to. */
struct region {
    bool used;
    uint8_t *base;
    size_t bytes;
    uint64_t key;
    bool is_gpu;
};

struct worker {
    bool used;
    ucp_am_recv_callback_t take[HANDLERS];
    void *arg;
};

struct endpoint {
    bool used, closing;
    bool tells;
    bool is_connected; /* something was sent over it, or has failed to be */
    unsigned under_way;
    struct worker *from, *to;
    ucp_err_handler_t handler;
};

struct blob {
    uint64_t mark, number;
};

enum kind { MESSAGE, FLUSH, CLOSE, FETCH };

struct request {
    bool used, wants_free; /* told, and not freed yet */
    enum kind kind;
    struct endpoint *endpoint;
    uint64_t number;
    const uint8_t *source;
    uint8_t *copy; /* once the sender has been told */
    uint8_t *target;
    size_t bytes;
    unsigned placed;           /* a bit for each part */
    const struct region *memh; /* of GPU memory */
    unsigned id;               /* MESSAGE */
    const void *header;
    uint8_t head[STEPAF_UCX_HEAD_MAX];
    size_t header_bytes;
    bool told_source, at_target, fails;
    bool is_kept; /* MESSAGE: its data stay with the sender until they are fetched */
    bool is_gpu;  /* the memory of whoever is to be told is a GPU's */
    struct request *fetched_by, *of; /* MESSAGE that is told only; FETCH */
    ucp_send_nbx_callback_t sent;
    ucp_am_recv_data_nbx_callback_t received;
    void *user_data;
};

extern struct ucx_made {
    struct worker workers[WORKERS];
    struct endpoint endpoints[ENDPOINTS];
    struct region regions[REGIONS];
    struct request requests[SENDS];
    unsigned n_active, active[SENDS];
    uint32_t random_state;
    uint64_t request_number, key_number;
} ucx_made;

bool ucx_fake_refuses(void);
struct request *ucx_fake_request(enum kind kind, struct endpoint *endpoint);
void ucx_fake_end(struct request *request);
struct worker *ucx_fake_owner(const struct request *request);
ucs_status_ptr_t ucx_fake_send(struct request *request, const ucp_request_param_t *param);
unsigned ucx_fake_progress(ucp_worker_h worker);
ucs_status_ptr_t ucx_fake_am_send(ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes,
                                  const void *buffer, size_t count,
                                  const ucp_request_param_t *param);
ucs_status_ptr_t ucx_fake_am_recv_data(ucp_worker_h worker, void *data, void *buffer, size_t count,
                                       const ucp_request_param_t *param);
ucs_status_ptr_t ucx_fake_flush(ucp_ep_h ep, const ucp_request_param_t *param);
void ucx_fake_request_free(void *request);

#endif
