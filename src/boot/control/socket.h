/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of control connections, none of which a child keeps, and addresses as the table has
 * them. */
#ifndef STEPAF_BOOT_CONTROL_SOCKET_H
#define STEPAF_BOOT_CONTROL_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "boot/control/place.h"

enum { STEPAF_CONTROL_ADDRESSES = 16, STEPAF_CONTROL_NO_ANSWER = 1 /* no error has it */ };

/* IPv6, or IPv4 as IPv6 has it. */
struct stepaf_control_address {
    uint8_t bytes[16];
    uint32_t scope; /* of a link-local one */
};

/* Listen at the first free port of a range, on loopback alone if the meeting point is there; other
 * ranks than 0 never at the port of the meeting point. The socket and its port; -1 with errno. */
int stepaf_control_listen(const struct stepaf_place *place, uint16_t first, uint16_t last,
                          uint16_t *port_p);
/* Begin to connect; -1 with errno. */
int stepaf_control_connect(const struct stepaf_control_address *address, uint16_t port);
/* Whether a connection leads to its own socket. TCP connects a socket to itself where nobody listens
 * at a port of this host and the system has given the caller that very port for its own end. */
bool stepaf_control_is_to_itself(int fd);
int stepaf_control_accept(int listener);
void stepaf_control_socket_close(int fd);
/* Let close() leave nothing of the connection behind that would keep its port taken. */
void stepaf_control_end_at_once(int fd);

/* The other end of a connection; false if it has none any more. */
bool stepaf_control_other_end(int fd, struct stepaf_control_address *address_p);
bool stepaf_control_is_loopback(const struct stepaf_control_address *address);
bool stepaf_control_is_link_local(const struct stepaf_control_address *address);
/* False: it is of another family. */
bool stepaf_control_address_from(const struct sockaddr *from,
                                 struct stepaf_control_address *address_p);

/* ---- resolve.c ---- */

/* Look the host up: how many addresses there are. 0: none, and *error_p is for gai_strerror, or 0;
 * STEPAF_CONTROL_NO_ANSWER by @a limit_ns. */
int stepaf_control_resolve(const char *host,
                           struct stepaf_control_address addresses_p[STEPAF_CONTROL_ADDRESSES],
                           int64_t limit_ns, int *error_p);

#endif
