/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "info.h"
#include "transport/transport.h"

void info_transports(const struct stepaf_env *env)
{
    for (int i = 0; stepaf_transports[i]; i++) {
        const struct stepaf_transport_ops *ops = stepaf_transports[i];
        char reason[STEPAF_REASON_MAX] = "";
        if (!stepaf_transport_admitted(env, ops->name))
            printf("%-8s not used: STEPAF_TRANSPORTS does not list it\n", ops->name);
        else if (!ops->probe(env, reason))
            printf("%-8s cannot be used: %s\n", ops->name, reason);
        else
            printf("%-8s can be used%s%s\n", ops->name, *reason ? ": " : "", reason);
    }
}
