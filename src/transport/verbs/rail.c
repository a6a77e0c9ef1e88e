/* SPDX-License-Identifier: Apache-2.0 */
/* One port of one device: open it, and find its address. */
#include "transport/verbs/rail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "transport/verbs/cm.h"

static stepaf_status_t refuse_rail(const struct stepaf_verbs_rail *rail, const char *what,
                                   int error)
{
    return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, "verbs: %s: %s: %s",
                            rail->name, what, strerror(error));
}

/* A completion queue is locked memory: often the first that a device needs. */
static stepaf_status_t refuse_queue(const struct stepaf_verbs_rail *rail, int64_t entries,
                                    int error)
{
    char hint[STEPAF_VERBS_HINT];

    stepaf_verbs_hint_at_limit(error, hint);
    return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                            "verbs: %s: no completion queue of %lld entries: %s%s", rail->name,
                            (long long)entries, strerror(error), hint);
}

/* Choose how the port is addressed: by LID, by a GID, or by an IP address that librdmacm connects
 * to. */
static stepaf_status_t take_address(struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail,
                                    const struct ibv_port_attr *port)
{
    int setting = verbs->base.up->env->verbs_connect;
    stepaf_status_t status = STEPAF_OK;
    struct ibv_gid_entry entry;

    if (rail->iwarp && setting != STEPAF_ENV_VERBS_CONNECT_oob) /* its GIDs are no addresses */
        return stepaf_verbs_cm_rail(verbs, rail);
    if (port->link_layer == IBV_LINK_LAYER_ETHERNET)
        status = stepaf_verbs_gid_choose(verbs, rail, port);
    else if (!verbs->provider->query_gid(rail->context, rail->port.number, 0, &entry))
        rail->port.gid = entry.gid;
    if ((!status && setting == STEPAF_ENV_VERBS_CONNECT_cm) ||
        (status == STEPAF_ERR_NO_TRANSPORT && setting != STEPAF_ENV_VERBS_CONNECT_oob &&
         verbs->provider->cm->open))
        status = stepaf_verbs_cm_rail(verbs, rail);
    return status;
}

static stepaf_status_t look_at_port(struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail)
{
    const struct stepaf_verbs_provider *provider = verbs->provider;
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    int error = provider->query_device(rail->context, &device);

    if (!error && rail->port.number > device.phys_port_cnt)
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                                "STEPAF_NET_DEVICES: %s: the device has %d ports", rail->name,
                                device.phys_port_cnt);
    if (!error)
        error = provider->query_port(rail->context, rail->port.number, &port);
    if (error)
        return refuse_rail(rail, "cannot be queried", error);
    if (port.state != IBV_PORT_ACTIVE)
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "verbs: %s is not active: is its link up?", rail->name);
    rail->port.lid = port.lid;
    rail->port.link_layer = port.link_layer;
    rail->global = port.link_layer == IBV_LINK_LAYER_ETHERNET || port.flags & IBV_QPF_GRH_REQUIRED;
    if (port.max_msg_sz >= STEPAF_VERBS_LINE && port.max_msg_sz < verbs->qp.max_write)
        verbs->qp.max_write = port.max_msg_sz / STEPAF_VERBS_LINE * STEPAF_VERBS_LINE;
    rail->max.qp_wr = device.max_qp_wr;
    rail->max.cqe = device.max_cqe;
    rail->pd = provider->alloc_pd(rail->context);
    if (!rail->pd)
        return refuse_rail(rail, "no protection domain", errno);
    stepaf_status_t status = take_address(verbs, rail, &port);
    return status ? status : stepaf_verbs_attributes_choose(verbs, rail, &port);
}

static bool notifies_by_imm(const struct stepaf_env *env, const struct ibv_device *device)
{
    if (env->verbs_notify == STEPAF_ENV_VERBS_NOTIFY_auto)
        return device->transport_type != IBV_TRANSPORT_IWARP;
    return env->verbs_notify == STEPAF_ENV_VERBS_NOTIFY_imm;
}

/* Return the interrupt that signals completions: ranks on different cores, and different rails, use
 * different interrupts. */
static int vector_of(const struct stepaf_verbs *verbs, const struct stepaf_verbs_rail *rail)
{
    int n = rail->context->num_comp_vectors;
    int core = verbs->provider->core();

    return n > 1 ? (int)(((core < 0 ? 0u : (unsigned)core) + verbs->n_rails) % (unsigned)n) : 0;
}

static stepaf_status_t make_queues(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail)
{
    const struct stepaf_verbs_provider *provider = verbs->provider;
    int64_t entries =
        (int64_t)verbs->n_peers * verbs->n_qps * (int64_t)(verbs->qp.depth + verbs->qp.receives);

    if (verbs->qp.depth > (uint32_t)rail->max.qp_wr ||
        verbs->qp.receives > (uint32_t)rail->max.qp_wr)
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "verbs: %s: a queue pair has at most %d work requests: lower "
                                "STEPAF_VERBS_SEND_DEPTH or STEPAF_VERBS_RECEIVES",
                                rail->name, rail->max.qp_wr);
    if (entries > rail->max.cqe)
        return stepaf_error_set(
            STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
            "verbs: %s: %u peers need a completion queue of %lld entries, but the limit is %d: "
            "lower STEPAF_VERBS_SEND_DEPTH or STEPAF_VERBS_RECEIVES, or set STEPAF_MESH=lane",
            rail->name, verbs->n_peers, (long long)entries, rail->max.cqe);
    if (verbs->base.up->env->verbs_sleep == STEPAF_ENV_VERBS_SLEEP_event) {
        rail->channel = provider->create_channel(rail->context);
        if (!rail->channel)
            return refuse_rail(rail, "no completion channel", errno);
    }
    rail->cq =
        provider->create_cq(rail->context, (int)entries, rail->channel, vector_of(verbs, rail));
    if (!rail->cq)
        return refuse_queue(rail, entries, errno);
    return STEPAF_OK;
}

stepaf_status_t stepaf_verbs_rail_open(struct stepaf_verbs *verbs, struct ibv_device *device,
                                       uint8_t port)
{
    struct stepaf_verbs_rail *rail = &verbs->rails[verbs->n_rails];
    stepaf_status_t status;

    *rail = (struct stepaf_verbs_rail){.port.number = port};
    snprintf(rail->name, sizeof(rail->name), "%.*s:%d", IBV_SYSFS_NAME_MAX - 1,
             verbs->provider->device_name(device), port);
    rail->imm = notifies_by_imm(verbs->base.up->env, device);
    rail->context = verbs->provider->open(device);
    if (!rail->context)
        return errno == EACCES || errno == EPERM
                   ? stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                      "verbs: %s: no permission on its file in /dev/infiniband: "
                                      "ask for read and write access",
                                      rail->name)
                   : refuse_rail(rail, "cannot be opened", errno);
    rail->iwarp = device->transport_type == IBV_TRANSPORT_IWARP;
    status = look_at_port(verbs, rail);
    if (!status)
        status = stepaf_verbs_lag_choose(verbs, rail);
    if (!status)
        status = make_queues(verbs, rail);
    if (status)
        stepaf_verbs_rail_close(verbs, rail);
    else
        verbs->n_rails++;
    return status;
}

void stepaf_verbs_rail_close(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail)
{
    stepaf_verbs_flush_end(verbs, rail);
    if (rail->cq)
        verbs->provider->destroy_cq(rail->cq);
    if (rail->channel)
        verbs->provider->destroy_channel(rail->channel);
    if (rail->pd)
        verbs->provider->dealloc_pd(rail->pd);
    verbs->provider->close(rail->context);
    rail->context = NULL;
    rail->pd = NULL;
    rail->channel = NULL;
    rail->cq = NULL;
}
