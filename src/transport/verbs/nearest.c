/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/nearest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *stepaf_verbs_unusable(const struct stepaf_verbs_provider *provider,
                                  const struct stepaf_env *env, const struct ibv_device *device)
{
    if (device->transport_type == IBV_TRANSPORT_IB)
        return NULL;
    if (device->transport_type != IBV_TRANSPORT_IWARP)
        return "has no reliable connections, which InfiniBand, RoCE and iWARP have (EFA does not): "
               "use its network interface with STEPAF_TRANSPORTS=tcp";
    /* librdmacm connects iWARP devices; some have a mode of their own, which the user must know. */
    return provider->cm->open || env->verbs_connect == STEPAF_ENV_VERBS_CONNECT_oob
               ? NULL
               : "is iWARP, which requires librdmacm to connect: this library was built without it";
}

uint8_t stepaf_verbs_active_port(const struct stepaf_verbs_provider *provider,
                                 struct ibv_device *device, int *error_p)
{
    struct ibv_context *context = provider->open(device);
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    uint8_t found = 0;

    *error_p = 0;
    if (!context) {
        *error_p = errno;
        return 0;
    }
    int error = provider->query_device(context, &attr);
    for (uint8_t i = 1; !error && i <= attr.phys_port_cnt && !found; i++)
        if (!provider->query_port(context, i, &port) && port.state == IBV_PORT_ACTIVE)
            found = i;
    provider->close(context);
    return found;
}

void stepaf_verbs_candidates_find(const struct stepaf_verbs_provider *provider,
                                  const struct stepaf_env *env, struct ibv_device **list, int n,
                                  struct stepaf_verbs_candidates *candidates_p)
{
    *candidates_p = (struct stepaf_verbs_candidates){0};
    for (int i = 0; i < n && candidates_p->n < STEPAF_VERBS_CANDIDATES; i++)
        if (!stepaf_verbs_unusable(provider, env, list[i]))
            candidates_p->device[candidates_p->n++] = list[i];
}

void stepaf_verbs_candidates_drop(struct stepaf_verbs_candidates *candidates,
                                  const struct ibv_device *device)
{
    unsigned n = 0;

    for (unsigned i = 0; i < candidates->n; i++)
        if (candidates->device[i] != device)
            candidates->device[n++] = candidates->device[i];
    candidates->n = n;
}

static struct ibv_device *candidate_by_name(const struct stepaf_verbs_provider *provider,
                                            const struct stepaf_verbs_candidates *candidates,
                                            const char *name)
{
    for (unsigned i = 0; i < candidates->n; i++)
        if (strcmp(provider->device_name(candidates->device[i]), name) == 0)
            return candidates->device[i];
    return NULL;
}

/* Choose by name; for a single device no facts are needed. */
static void choose_names(const struct stepaf_verbs_provider *provider, const char *gpu,
                         const struct stepaf_verbs_candidates *candidates,
                         struct stepaf_topo_nics *nics_p)
{
    const char *names[STEPAF_VERBS_CANDIDATES];

    for (unsigned i = 0; i < candidates->n; i++)
        names[i] = provider->device_name(candidates->device[i]);
    struct stepaf_topo_nics_query query = {
        .gpu = gpu, .core = provider->core(), .names = names, .n_names = candidates->n};
    if (candidates->n > 1) {
        provider->choose(&query, nics_p);
        return;
    }
    *nics_p = (struct stepaf_topo_nics){.n = 1, .how = ""};
    snprintf(nics_p->name[0], sizeof(nics_p->name[0]), "%s", names[0]);
}

bool stepaf_verbs_nearest(const struct stepaf_verbs_provider *provider, const char *gpu,
                          struct stepaf_verbs_candidates *candidates,
                          struct stepaf_verbs_choice *choice_p)
{
    struct stepaf_topo_nics nics;
    unsigned before;

    do {
        before = candidates->n;
        *choice_p = (struct stepaf_verbs_choice){0};
        if (!before)
            return false;
        choose_names(provider, gpu, candidates, &nics);
        for (unsigned i = 0; i < nics.n; i++) {
            struct ibv_device *device = candidate_by_name(provider, candidates, nics.name[i]);
            int error = 0;
            uint8_t port = device ? stepaf_verbs_active_port(provider, device, &error) : 0;
            if (error) {
                candidates->error = error;
                snprintf(candidates->refused, sizeof(candidates->refused), "%s", nics.name[i]);
            }
            if (!port) {
                stepaf_verbs_candidates_drop(candidates, device);
                continue;
            }
            choice_p->device[choice_p->n] = device;
            choice_p->port[choice_p->n++] = port;
        }
        memcpy(choice_p->why, nics.why, sizeof(choice_p->why));
        choice_p->how = nics.how;
    } while (candidates->n < before); /* others may be as near: choose again */
    return choice_p->n > 0;
}
