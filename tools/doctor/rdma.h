/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of RDMA devices, and what the kernel's files say of one. */
#ifndef STEPAF_TOOLS_DOCTOR_RDMA_H
#define STEPAF_TOOLS_DOCTOR_RDMA_H

#include "doctor.h"

struct doctor_port {
    const char *device;
    const char *number;
    int is_ethernet;  /* -1: not known */
    int is_active;    /* -1: not known */
    int is_iwarp;     /* RDMA over TCP: nothing of RoCE is its */
    int is_elsewhere; /* netdev is in another network namespace than this process */
    char state[DOCTOR_NAME];
    char netdev[DOCTOR_NAME]; /* of the first address; "" for InfiniBand, or if it is not known */
};

/* Call @a say for each port of all devices; how many there were. */
int doctor_ports(struct doctor *doctor,
                 void (*say)(struct doctor *doctor, const struct doctor_port *port));

/* dcb.c: which priorities have priority flow control, by the interface's driver: a bit for each.
 * False if it does not tell. */
int doctor_read_pfc(const struct doctor *doctor, const char *netdev, unsigned *priorities_p);

#endif
