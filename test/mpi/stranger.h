/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to a listening port from somebody who does not belong to the job. */
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

/* Wait until so many listen on one of the ports, and try to get in until it is over. */
void stranger_siege_run(struct stranger_siege *siege);

/* Sockets of this network that listen on one of the ports; the address of number @a index of them,
 * as one can connect to it, to *address_p unless that is NULL. -1: the system does not say. */
int stranger_listeners(const struct stranger_ports *ports, int index,
                       struct sockaddr_storage *address_p);

/* Sockets of this network that are connected from or to one of the ports. */
int stranger_connections(const struct stranger_ports *ports);

#endif
