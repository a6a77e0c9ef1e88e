/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to a listening port from a process that does not belong to the job. */
#ifndef STEPAF_TEST_STRANGER_H
#define STEPAF_TEST_STRANGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { STRANGERS = 64 /* at once: more than a listener has places for */ };

struct stranger_ports {
    unsigned short first, last;
};

struct stranger_siege {
    struct stranger_ports ports;
    int n;                  /* this network's listeners, when all are there */
    int index;              /* which of them, from 0 */
    _Atomic int64_t *begun; /* raised by one when a stranger of each kind has got a connection */
    _Atomic bool over;      /* set by the besieged */
    int came;               /* connections made */
    int stayed;             /* that were still open long after it was over */
};

/* Wait until enough sockets listen on one of the ports, and try to get in until the test is
 * over. */
void stranger_siege_run(struct stranger_siege *siege);

/* Count sockets of this network that listen on one of the ports; the connectable address of
 * number @a index of them goes to *address_p unless that is NULL. -1: the system does not report
 * them. */
int stranger_listeners(const struct stranger_ports *ports, int index,
                       struct sockaddr_storage *address_p);

/* Count sockets of this network that are connected from or to one of the ports. */
int stranger_connections(const struct stranger_ports *ports);

#endif
