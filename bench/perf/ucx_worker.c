/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of UCX: the library, a worker, and endpoints, as the library's own. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "fail.h"
#include "ucx_state.h"

enum { CLOSE_LOOKS = 1000000 };

static int look_up(struct perf_ucx *ucx)
{
    static const struct {
        const char *name;
        size_t at;
    } entries[] = {
#define CALL(name) {"ucp_" #name, offsetof(struct perf_ucx_library, name)},
        PERF_UCX_CALLS(CALL)
#undef CALL
            {"ucs_status_string", offsetof(struct perf_ucx_library, status_string)},
    };
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL); /* for good */

    if (library == NULL)
        return perf_fail("plain UCX: %s", dlerror());
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *function = dlsym(library, entries[i].name);

        if (function == NULL)
            return perf_fail("plain UCX: UCX has no %s", entries[i].name);
        memcpy((char *)&ucx->calls + entries[i].at, &function, sizeof(function));
    }
    return 0;
}

int perf_ucx_worker_open(struct perf_ucx *ucx, struct perf_ucx_end *end_p)
{
    const ucp_params_t params = {.field_mask =
                                     UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                 .features = UCP_FEATURE_AM | UCP_FEATURE_RMA,
                                 .estimated_num_eps = (size_t)ucx->n_conns};
    const ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                               .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = PERF_UCX_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = perf_ucx_take,
        .arg = ucx};
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS};
    ucs_status_t status;

    if (look_up(ucx) != 0)
        return -1;
    status = ucx->calls.init_version(1, 13, &params, NULL, &ucx->context);
    if (status == UCS_OK)
        status = ucx->calls.worker_create(ucx->context, &worker_params, &ucx->worker);
    if (status == UCS_OK)
        status = ucx->calls.worker_set_am_recv_handler(ucx->worker, &handler);
    if (status == UCS_OK)
        status = ucx->calls.worker_query(ucx->worker, &attr);
    if (status != UCS_OK)
        return perf_fail("plain UCX: %s", ucx->calls.status_string(status));
    end_p->bytes = (uint32_t)attr.address_length;
    if (attr.address_length <= sizeof(end_p->address))
        memcpy(end_p->address, attr.address, attr.address_length);
    ucx->calls.worker_release_address(ucx->worker, attr.address);
    return attr.address_length <= sizeof(end_p->address)
               ? 0
               : perf_fail("plain UCX: its address is too long");
}

int perf_ucx_worker_connect(struct perf_ucx *ucx, const struct perf_ucx_end *end, ucp_ep_h *ep_p)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .address = (const ucp_address_t *)(const void *)end->address,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER};
    ucs_status_t status = ucx->calls.ep_create(ucx->worker, &params, ep_p);

    if (status == UCS_ERR_UNREACHABLE) { /* shared memory of older ones tells of no errors */
        params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
        status = ucx->calls.ep_create(ucx->worker, &params, ep_p);
    }
    return status == UCS_OK ? 0 : perf_fail("plain UCX: %s", ucx->calls.status_string(status));
}

static void has_closed(void *request, ucs_status_t status, void *user_data)
{
    struct perf_ucx *ucx = user_data;

    (void)status;
    ucx->calls.request_free(request);
    ucx->under_way--;
}

void perf_ucx_worker_close(struct perf_ucx *ucx)
{
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = has_closed,
                                       .user_data = ucx};

    for (int i = 0; ucx->conns != NULL && i < ucx->n_conns; i++)
        if (ucx->conns[i].ep != NULL)
            ucx->under_way += UCS_PTR_IS_PTR(ucx->calls.ep_close_nbx(ucx->conns[i].ep, &param));
    for (int looks = 0; ucx->under_way > 0 && looks < CLOSE_LOOKS; looks++)
        (void)ucx->calls.worker_progress(ucx->worker);
    if (ucx->under_way > 0)
        return; /* to end it now would end the process */
    if (ucx->worker != NULL)
        ucx->calls.worker_destroy(ucx->worker);
    if (ucx->context != NULL)
        ucx->calls.cleanup(ucx->context);
}
