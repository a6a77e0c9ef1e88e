/* SPDX-License-Identifier: Apache-2.0 */
/* librdmacm's place taken for the made-up devices: ids and events of this process. What is asked is
 * answered at once, by an event; what a test sets comes in its place. */
#ifndef STEPAF_TEST_VERBS_CM_H
#define STEPAF_TEST_VERBS_CM_H

#include "verbs_device.h"

/* verbs_cm_reset sets all to zero. */
struct verbs_cm {
    bool no_channel;
    bool no_address;
    bool other_device;                     /* addresses are reached by another one */
    int busy_ports;                        /* listening fails so often, by EADDRINUSE */
    int fail_address;                      /* -errno of the event */
    int fail_route;                        /* likewise */
    int fail_connect;                      /* likewise: nobody answers there */
    int no_room;                           /* so many requests are turned away by the kernel */
    bool nobody_listens;                   /* nor does the kernel know anything of it */
    bool silent;                           /* no answer ever comes */
    bool bad_answer;                       /* acceptances have a wrong proof */
    unsigned n_said;                       /* requests and acceptances with data */
    uint8_t said[2][STEPAF_VERBS_CM_DATA]; /* the first of these */
    /* counts */
    unsigned n_requests;
    unsigned n_accepted;
    unsigned n_rejected; /* by the program, not by the kernel */
};

extern struct verbs_cm verbs_cm;
extern const struct stepaf_verbs_cm_ops verbs_cm_ops;

void verbs_cm_reset(void);
/* An event of the connection that @a qpn has. */
void verbs_cm_event(uint32_t qpn, enum stepaf_verbs_cm_type type, int status);
/* A request out of nowhere, for the listener at @a port. */
void verbs_cm_stranger(uint16_t port, const void *data, size_t bytes);

#endif
