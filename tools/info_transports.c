/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "device/gpu.h"
#include "info.h"
#include "transport/transport.h"

/* How GPU memory goes over a transport that may reach it itself: tried, so that it is sure. */
static void show_gpu(const struct stepaf_transport_ops *ops, const struct stepaf_env *env)
{
    char text[STEPAF_REASON_MAX] = "";
    struct stepaf_gpu *gpu;

    if (!stepaf_gpu_probe(text) || stepaf_gpu_open(&gpu) != STEPAF_OK)
        return; /* what is said of the GPU says why */
    ops->probe_gpu(env, gpu, text);
    printf("%-8s GPU memory of plans that the host starts: %s\n", ops->name, text);
    stepaf_gpu_close(gpu);
}

/* Those that not every build has, and of what headers are needed to build them. */
static const struct {
    const char *name, *library;
} optional[] = {{"verbs", "libibverbs"}, {"ofi", "libfabric"}, {"ucx", "UCX"}};

static void show_absent(void)
{
    for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++) {
        int at = 0;
        while (stepaf_transports[at] && strcmp(stepaf_transports[at]->name, optional[i].name) != 0)
            at++;
        if (!stepaf_transports[at])
            printf("%-8s not in this build, which was made without headers of %s\n",
                   optional[i].name, optional[i].library);
    }
}

/* libfabric and UCX tell what they take of a machine only when they are opened. */
static int open_and_describe(const struct stepaf_env *env, const struct stepaf_transport_ops *ops,
                             char *text)
{
    struct stepaf_upcalls up = {.env = env};
    struct stepaf_transport *transport;

    if (ops->open(&up, 1, &transport)) {
        const char *why = stepaf_last_error()->text, *name = strstr(why, ": ");
        bool is_said = name && !strncmp(why, ops->name, (size_t)(name - why));
        snprintf(text, STEPAF_REASON_MAX, "%.190s", is_said ? name + 2 : why);
        return 0;
    }
    ops->describe(transport, text);
    ops->close(transport);
    return 1;
}

int info_transport(const struct stepaf_env *env, const struct stepaf_transport_ops *ops, char *text)
{
    char found[STEPAF_REASON_MAX] = "", opened[STEPAF_REASON_MAX] = "";
    int usable = ops->probe(env, found);

    if (usable && ops->describe && ops->caps & STEPAF_TRANSPORT_ASKED)
        usable = open_and_describe(env, ops, opened);
    snprintf(text, INFO_TRANSPORT_TEXT, "%s%s%s", opened, *opened && *found ? "; " : "", found);
    return usable;
}

const char *info_not_listed(const struct stepaf_env *env)
{
    return *env->transports ? "STEPAF_TRANSPORTS does not list it"
                            : "used only where STEPAF_TRANSPORTS lists it";
}

void info_transports(const struct stepaf_env *env)
{
    for (int i = 0; stepaf_transports[i]; i++) {
        const struct stepaf_transport_ops *ops = stepaf_transports[i];
        char reason[INFO_TRANSPORT_TEXT] = "";
        if (!stepaf_transport_admitted(env, ops)) {
            printf("%-8s not used: %s\n", ops->name, info_not_listed(env));
        } else if (!info_transport(env, ops, reason)) {
            printf("%-8s cannot be used: %s\n", ops->name, reason);
        } else {
            printf("%-8s can be used%s%s\n", ops->name, *reason ? ": " : "", reason);
            if (ops->probe_gpu)
                show_gpu(ops, env);
        }
    }
    show_absent();
}
