/* SPDX-License-Identifier: Apache-2.0 */
/* Bonds: a NIC that joins its ports into one device chooses the port for each queue pair's packets
 * itself, and all could use the same port. This file assigns queue pairs to ports round-robin. */
#include "base/error.h"
#include "base/log.h"
#include "transport/verbs/verbs.h"

/* Return why the ports of the rail cannot be chosen; NULL if it is a bond of *n_p ports. */
static const char *check_bond(const struct stepaf_verbs *verbs,
                              const struct stepaf_verbs_rail *rail, unsigned *n_p)
{
    const struct stepaf_verbs_lag_ops *ops = verbs->provider->lag;

    *n_p = 0;
    if (!ops->is_mlx5)
        return "this library was built without libmlx5, which sets the port of a bond";
    if (!ops->is_mlx5(rail->context->device))
        return "it is not an mlx5 device, and only these can set the port of a bond";
    *n_p = ops->ports(rail->context);
    return *n_p ? NULL : "it is not a bond of several ports";
}

stepaf_status_t stepaf_verbs_lag_choose(const struct stepaf_verbs *verbs,
                                        struct stepaf_verbs_rail *rail)
{
    int setting = verbs->base.up->env->verbs_lag;
    unsigned port = setting == STEPAF_ENV_VERBS_LAG_1 ? 1 : 2, n;
    const char *why;

    if (setting == STEPAF_ENV_VERBS_LAG_off)
        return STEPAF_OK;
    why = check_bond(verbs, rail, &n);
    if (setting == STEPAF_ENV_VERBS_LAG_auto) {
        if (why)
            stepaf_log_debug("verbs: %s: queue pairs are assigned to no port of a bond: %s",
                             rail->name, why);
        else
            stepaf_log_debug("verbs: %s: queue pairs use the %u ports of the bond alternately",
                             rail->name, n);
        rail->lag.ports = (uint8_t)n;
        return STEPAF_OK;
    }
    if (!why && port > n)
        why = "the bond has fewer ports";
    if (why)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT,
                                "STEPAF_VERBS_LAG=%u: %s: %s", port, rail->name, why);
    rail->lag.port = (uint8_t)port;
    return STEPAF_OK;
}

int stepaf_verbs_lag_apply(const struct stepaf_verbs *verbs, const struct stepaf_verbs_link *link,
                           unsigned index)
{
    const struct stepaf_verbs_path *path = &link->paths[index];
    const struct stepaf_verbs_rail *rail = path->rail;
    uint8_t port = rail->lag.port;
    int error;

    if (rail->lag.ports) /* with one queue pair per peer, the peers alternate */
        port = (uint8_t)(1 + (link->base.peer + index) % rail->lag.ports);
    if (!port)
        return 0;
    error = verbs->provider->lag->set_port(path->qp, port);
    if (!error || rail->lag.port)
        return error;
    stepaf_log_debug("verbs: %s, queue pair 0x%x: not assigned to port %u of the bond, errno %d",
                     rail->name, path->qp->qp_num, port, error);
    return 0;
}
