/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of control connections, which children do not keep, and addresses in the form of the
 * table. */
#ifndef STEPAF_BOOT_CONTROL_SOCKET_H
#define STEPAF_BOOT_CONTROL_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "boot/control/place.h"

enum { STEPAF_CONTROL_ADDRESSES = 16, STEPAF_CONTROL_NO_ANSWER = 1 /* no error has this value */ };

/* An IPv6 address, or an IPv4-mapped one. */
struct stepaf_control_address {
    uint8_t bytes[16];
    uint32_t scope; /* of a link-local address */
};

/* Listen at the first free port of a range: at the address @a own; NULL: at all addresses, but on
 * loopback only if the meeting point is there. Ranks other than 0 never listen at the port of the
 * meeting point. Returns the socket and its port; -1 with errno. */
int stepaf_control_listen(const struct stepaf_place *place,
                          const struct stepaf_control_address *own, uint16_t first, uint16_t last,
                          uint16_t *port_p);
/* Begin to connect; returns -1 with errno. */
int stepaf_control_connect(const struct stepaf_control_address *address, uint16_t port);
/* Return whether a connection leads to its own socket. TCP connects a socket to itself if no
 * process listens at a port of this host and the system has given the caller that very port for its
 * own end. */
bool stepaf_control_is_to_itself(int fd);
int stepaf_control_accept(int listener);
void stepaf_control_socket_close(int fd);
/* Make close() discard the connection, so that nothing keeps its port in use. */
void stepaf_control_end_at_once(int fd);

/* Write the address of the other end of a connection; returns false if there is none any more. */
bool stepaf_control_other_end(int fd, struct stepaf_control_address *address_p);
bool stepaf_control_is_loopback(const struct stepaf_control_address *address);
bool stepaf_control_is_link_local(const struct stepaf_control_address *address);
/* Returns false if the address is of another family. */
bool stepaf_control_address_from(const struct sockaddr *from,
                                 struct stepaf_control_address *address_p);

/* ---- resolve.c ---- */

/* Look up the host; return the number of addresses. 0: none, and *error_p is for gai_strerror, or
 * 0; *error_p is STEPAF_CONTROL_NO_ANSWER if there is no answer by @a limit_ns. */
int stepaf_control_resolve(const char *host,
                           struct stepaf_control_address addresses_p[STEPAF_CONTROL_ADDRESSES],
                           int64_t limit_ns, int *error_p);

#endif
