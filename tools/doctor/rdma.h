/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of RDMA devices, with the data of the kernel's files on them. */
#ifndef STEPAF_TOOLS_DOCTOR_RDMA_H
#define STEPAF_TOOLS_DOCTOR_RDMA_H

#include "doctor.h"

struct doctor_port {
    const char *device;
    const char *number;
    int is_ethernet;  /* -1: not known */
    int is_active;    /* -1: not known */
    int is_iwarp;     /* RDMA over TCP: RoCE does not apply */
    int is_elsewhere; /* netdev is in another network namespace than this process */
    char state[DOCTOR_NAME];
    char netdev[DOCTOR_NAME]; /* of the first address; "" for InfiniBand, or if unknown */
};

/* Call @a say for each port of all devices; return the number of ports. */
int doctor_ports(struct doctor *doctor,
                 void (*say)(struct doctor *doctor, const struct doctor_port *port));

/* dcb.c: get the priorities with priority flow control from the interface's driver: one bit
 * each. Returns false if the driver does not report them. */
int doctor_read_pfc(const struct doctor *doctor, const char *netdev, unsigned *priorities_p);

#endif
