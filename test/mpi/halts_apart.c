/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that are never answered, as where a firewall drops packets: they go to a socket that
 * has as many connections in its queue as it takes. */
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "halts.h"

enum { FIRST_PORT = 27210, LAST_PORT = 27229, QUEUED = 2 };

static bool is_set;
static struct sockaddr_in nowhere = {.sin_family = AF_INET};

static int port_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET ? ntohs(((const struct sockaddr_in *)address)->sin_port)
                                         : 0;
}

/* In place of the C library's, for the library too. */
__attribute__((visibility("default"))) int connect(int fd, const struct sockaddr *address,
                                                   socklen_t bytes)
{
    int port = port_of(address);

    if (is_set && port >= FIRST_PORT && port <= LAST_PORT) {
        address = (const struct sockaddr *)&nowhere;
        bytes = sizeof(nowhere);
    }
    return (int)syscall(SYS_connect, fd, address, bytes);
}

void halts_be_apart(void)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = sizeof(nowhere);
    char ports[32];

    nowhere.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&nowhere, bytes) || listen(listener, 0) ||
        getsockname(listener, (struct sockaddr *)&nowhere, &bytes))
        abort();
    for (int i = 0; i < QUEUED; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fd, (struct sockaddr *)&nowhere, bytes);
    }
    snprintf(ports, sizeof(ports), "%d-%d", FIRST_PORT, LAST_PORT);
    setenv("STEPAF_NET_PORTS", ports, 1);
    is_set = true;
}
