/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices: those that the settings name, else the nearest one with an active port; and why
 * none, in words. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/verbs/rail.h"

/* iWARP devices are connected by librdmacm; some have a mode of their own, which the user knows of. */
static bool is_usable(const struct stepaf_verbs_provider *provider, const struct stepaf_env *env,
                      const struct ibv_device *device)
{
    return device->transport_type == IBV_TRANSPORT_IB ||
           (device->transport_type == IBV_TRANSPORT_IWARP &&
            (provider->cm->open || env->verbs_connect == STEPAF_ENV_VERBS_CONNECT_oob));
}

/* Its first active port; 0: none, *error_p: 0 or why it could not be opened. */
static uint8_t active_port(const struct stepaf_verbs_provider *provider, struct ibv_device *device,
                           int *error_p)
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

static int own_node(void)
{
    unsigned cpu, node;

    return syscall(SYS_getcpu, &cpu, &node, NULL) ? -1 : (int)node; /* glibc has it since 2.29 */
}

static bool some_iwarp(struct ibv_device **list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i]->transport_type == IBV_TRANSPORT_IWARP)
            return true;
    return false;
}

static void say_none(const struct stepaf_verbs_provider *provider, struct ibv_device **list, int n,
                     const char *refused, int error, char *reason)
{
    if (!list || !n)
        snprintf(
            reason, STEPAF_REASON_MAX,
            access("/dev/infiniband", F_OK)
                ? "no RDMA device: there is no /dev/infiniband (is ib_uverbs loaded, and is it "
                  "passed into the container?)"
                : "no RDMA device");
    else if (error)
        snprintf(reason, STEPAF_REASON_MAX, "%.60s cannot be opened: %.60s%s", refused,
                 strerror(error),
                 error == EACCES || error == EPERM
                     ? " (its file in /dev/infiniband needs read and write access)"
                     : "");
    else
        snprintf(reason, STEPAF_REASON_MAX,
                 some_iwarp(list, n) && !provider->cm->open
                     ? "no RDMA device has an active port but those of iWARP, which takes "
                       "librdmacm to connect: this library was built without it"
                     : "no RDMA device has an active port");
}

/* The nearest device with an active port; NULL: there is none, and @a reason says why. */
static struct ibv_device *nearest(const struct stepaf_verbs_provider *provider,
                                  const struct stepaf_env *env, struct ibv_device **list, int n,
                                  uint8_t *port_p, char *reason)
{
    struct ibv_device *best = NULL;
    const char *refused = "";
    int node = own_node(), last_error = 0;

    for (int i = 0; list && i < n; i++) {
        int error;
        if (!is_usable(provider, env, list[i]) ||
            (best && (node < 0 || provider->device_numa(best) == node ||
                      provider->device_numa(list[i]) != node)))
            continue;
        uint8_t port = active_port(provider, list[i], &error);
        if (port) {
            best = list[i];
            *port_p = port;
        } else if (error) {
            last_error = error;
            refused = provider->device_name(list[i]);
        }
    }
    if (!best)
        say_none(provider, list, n, refused, last_error, reason);
    return best;
}

bool stepaf_verbs_probe(const struct stepaf_env *env, char *reason)
{
    const struct stepaf_verbs_provider *provider = stepaf_verbs_provider;
    int n = 0;
    struct ibv_device **list = provider->device_list(&n);
    uint8_t port = 0;
    bool good = list && n && env->net_devices[0]; /* what is named is looked at when it is opened */

    reason[0] = '\0';
    if (good) {
        snprintf(reason, STEPAF_REASON_MAX, "by STEPAF_NET_DEVICES=%.100s", env->net_devices);
    } else {
        struct ibv_device *device = nearest(provider, env, list, n, &port, reason);
        good = device != NULL;
        if (good)
            snprintf(reason, STEPAF_REASON_MAX, "over %.60s:%d", provider->device_name(device),
                     port);
    }
    if (list)
        provider->device_list_free(list);
    return good;
}

static struct ibv_device *device_by_name(const struct stepaf_verbs_provider *provider,
                                         struct ibv_device **list, int n, const char *name,
                                         size_t length)
{
    for (int i = 0; i < n; i++)
        if (strlen(provider->device_name(list[i])) == length &&
            !memcmp(provider->device_name(list[i]), name, length))
            return list[i];
    return NULL;
}

static stepaf_status_t unknown(const struct stepaf_verbs_provider *provider,
                               struct ibv_device **list, int n, const char *name, size_t length)
{
    char known[160] = "none";
    size_t used = 0;

    for (int i = 0; i < n && used < sizeof(known); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                                 provider->device_name(list[i]));
    return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                            "STEPAF_NET_DEVICES: there is no RDMA device \"%.*s\"; there are: %s",
                            (int)(length < 60 ? length : 60), name, known);
}

/* Open the rail of one word, device[:port]. */
static stepaf_status_t open_named(struct stepaf_verbs *verbs, struct ibv_device **list, int n,
                                  const char *word, size_t length)
{
    size_t name = strcspn(word, ":, ");
    unsigned long port = 0;
    int error;

    if (verbs->n_rails == STEPAF_VERBS_RAILS_MAX)
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                                "STEPAF_NET_DEVICES names more than %d devices",
                                STEPAF_VERBS_RAILS_MAX);
    struct ibv_device *device = device_by_name(verbs->provider, list, n, word, name);
    if (!device)
        return unknown(verbs->provider, list, n, word, name);
    if (!is_usable(verbs->provider, verbs->base.up->env, device))
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT,
                                "STEPAF_NET_DEVICES: %.*s is no device of InfiniBand or RoCE, and "
                                "iWARP takes librdmacm to connect: this library was built without "
                                "it",
                                (int)name, word);
    if (name < length) {
        char *end;
        port = strtoul(word + name + 1, &end, 10);
        if (end != word + length || !port || port > UINT8_MAX)
            return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                                    "STEPAF_NET_DEVICES: \"%.*s\" is not device[:port]",
                                    (int)(length < 60 ? length : 60), word);
    } else {
        port = active_port(verbs->provider, device, &error);
    }
    return stepaf_verbs_rail_open(verbs, device, port ? (uint8_t)port : 1);
}

static stepaf_status_t open_all(struct stepaf_verbs *verbs, struct ibv_device **list, int n)
{
    const char *word = verbs->base.up->env->net_devices;
    char reason[STEPAF_REASON_MAX] = "";
    stepaf_status_t status = STEPAF_OK;
    uint8_t port;

    for (word += strspn(word, ", "); *word && !status; word += strspn(word, ", ")) {
        size_t length = strcspn(word, ", ");
        status = open_named(verbs, list, n, word, length);
        word += length;
    }
    if (verbs->n_rails || status)
        return status;
    struct ibv_device *device =
        nearest(verbs->provider, verbs->base.up->env, list, n, &port, reason);
    if (!device)
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, "verbs: %s", reason);
    return stepaf_verbs_rail_open(verbs, device, port);
}

stepaf_status_t stepaf_verbs_rails_open(struct stepaf_verbs *verbs)
{
    int n = 0;
    struct ibv_device **list = verbs->provider->device_list(&n);
    stepaf_status_t status = open_all(verbs, list, list ? n : 0);

    if (list)
        verbs->provider->device_list_free(list);
    verbs->n_paths = verbs->n_rails * verbs->n_qps;
    return status;
}

void stepaf_verbs_rails_close(struct stepaf_verbs *verbs)
{
    while (verbs->n_rails)
        stepaf_verbs_rail_close(verbs, &verbs->rails[--verbs->n_rails]);
}
