/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of control connections, none of which a child keeps, and addresses as the table has
 * them. */
#ifndef STEPAF_BOOT_CONTROL_SOCKET_H
#define STEPAF_BOOT_CONTROL_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/control/place.h"

enum { STEPAF_CONTROL_ADDRESSES = 16 };

/* IPv6, or IPv4 as IPv6 has it. */
struct stepaf_control_address {
    uint8_t bytes[16];
    uint32_t scope; /* of a link-local one */
};

/* Listen at the first free port of a range, on loopback alone if the meeting point is there. The
 * socket and its port; -1 with errno. */
int stepaf_control_listen(const struct stepaf_place *place, uint16_t first, uint16_t last,
                          uint16_t *port_p);
/* Begin to connect; -1 with errno. */
int stepaf_control_connect(const struct stepaf_control_address *address, uint16_t port);
int stepaf_control_accept(int listener);
void stepaf_control_socket_close(int fd);

/* The other end of a connection; false if it has none any more. */
bool stepaf_control_other_end(int fd, struct stepaf_control_address *address_p);
bool stepaf_control_is_loopback(const struct stepaf_control_address *address);

/* Look the host up: how many addresses there are. 0: none, and *error_p is for gai_strerror. As
 * long as name service takes. */
int stepaf_control_resolve(const char *host,
                           struct stepaf_control_address addresses_p[STEPAF_CONTROL_ADDRESSES],
                           int *error_p);

#endif
