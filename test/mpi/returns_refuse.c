/* SPDX-License-Identifier: Apache-2.0 */
/* A process that returns, and that a member does not answer, as a firewall or a network that fails
 * may have it. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "returns.h"

enum { FIRST_PORT = 27170, LAST_PORT = 27209 };

static bool is_refused;

static int port_of(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)address)->sin_port);
    return address->sa_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)address)->sin6_port)
                                          : 0;
}

/* In place of the C library's, for the library too. */
__attribute__((visibility("default"))) int connect(int fd, const struct sockaddr *address,
                                                   socklen_t bytes)
{
    int port = port_of(address);

    if (is_refused && port >= FIRST_PORT && port <= LAST_PORT) {
        errno = ECONNREFUSED;
        return -1;
    }
    return (int)syscall(SYS_connect, fd, address, bytes);
}

void returns_set_ports(const struct hs_job *job)
{
    char text[32];

    snprintf(text, sizeof(text), "%d-%d", FIRST_PORT, LAST_PORT);
    if (hs_option_int(job, "--refused", 0) && job->rank == job->size - 1)
        setenv("STEPAF_NET_PORTS", text, 1);
}

void returns_be_refused(struct rank *rank)
{
    struct hs_job *job = rank->job;
    const stepaf_error_t *error = stepaf_last_error();

    is_refused = true;
    hs_step("init, to return in vain");
    if (HS_OK(returns_init_back(rank, returns_secret, job->rank, 60000000, &job->ctx)) &&
        returns_prepare(rank)) {
        HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_PEER_LOST);
        HS_INT(error->peer_world_rank, ==, job->size - 1);
        HS_INT(error->phase, ==, STEPAF_PHASE_COMMIT);
        if (!strstr(error->text, "cannot reach FFN"))
            HS_FAILED("%s", error->text);
    }
    stepaf_finalize(job->ctx);
    atomic_fetch_add(&job->shared->stamp[STAMP_REFUSED], 1);
    fflush(NULL);
    _exit(hs_failed() ? 1 : RETURNS_HAS_LEFT);
}
