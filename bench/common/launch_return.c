/* SPDX-License-Identifier: Apache-2.0 */
/* A process that replaces a lost rank. The job's own channel does not include it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "launch.h"

static stepaf_status_t return_join(struct launch *launch, const stepaf_params_t *params,
                                   stepaf_context_h *ctx_p)
{
    (void)launch;
    return stepaf_init(NULL, params, ctx_p);
}

/* Read a required number from the environment; -1: it is missing. */
static int read_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    errno = 0;
    long number = text ? strtol(text, &end, 10) : -1;
    return text && !errno && end != text && !*end && number >= 0 && number <= 1 << 20 ? (int)number
                                                                                      : -1;
}

int launch_return(const struct launch_params *params, launch_body_t body, void *arg)
{
    struct launch launch = {
        .mpi_init_ns = -1, .missing = -1, .returns = 1, .join = return_join, .broken = 1};
    launch.channel = (stepaf_boot_t){.name = "return",
                                     .rank = read_number("STEPAF_RANK"),
                                     .size = read_number("STEPAF_SIZE"),
                                     .app_number = -1};
    if (launch.channel.rank < 0 || launch.channel.size <= launch.channel.rank) {
        fprintf(stderr, "%s: STEPAF_JOIN takes STEPAF_RANK and STEPAF_SIZE\n", params->program);
        return params->failed_code;
    }
    return body(&launch, arg);
}
