/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's place in a job that no launcher knows of: by settings, by what torchrun puts into the
 * environment, or by the host names of a Kubernetes StatefulSet. */
#ifndef STEPAF_BOOT_CONTROL_PLACE_H
#define STEPAF_BOOT_CONTROL_PLACE_H

#include "base/proof.h"
#include "settings/settings.h"

enum {
    STEPAF_PLACE_HOST_MAX = 255,
    STEPAF_PLACE_MEET_MAX = STEPAF_PLACE_HOST_MAX + sizeof("[]:65535"),
    STEPAF_PLACE_SECRET_MAX = 1024,
    /* torchrun's agent listens at MASTER_PORT itself, and a second job is often given the next. */
    STEPAF_PLACE_TORCH_PORTS = 1000
};

struct stepaf_place {
    int rank;
    int size;
    char meet[STEPAF_PLACE_MEET_MAX]; /* "host:port", for sentences */
    char host[STEPAF_PLACE_HOST_MAX + 1];
    uint16_t port;
    uint16_t first_port, last_port; /* to listen at, but for the meeting point; 0: any */
    bool is_loopback;               /* the host is an address that leads nowhere else */
    bool has_secret;
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
};

/* Whether torchrun, or something that sets what it sets, has started this process. */
bool stepaf_place_is_torch(void);

/* Find it; @a host_name is this host's. STEPAF_ERR_SETTING if something is missing, or not what it
 * has to be. */
stepaf_status_t stepaf_place_find(const struct stepaf_env *env, const char *host_name,
                                  struct stepaf_place *place_p);

/* Find that of a process which is to take a lost rank's place, as STEPAF_JOIN says, or one of those
 * that there is room for, which its size counts in; its meet is for sentences. */
stepaf_status_t stepaf_place_return(const struct stepaf_env *env, const char *host_name,
                                    struct stepaf_place *place_p);
/* Only the secret: has_secret and key. */
stepaf_status_t stepaf_place_find_secret(const struct stepaf_env *env, struct stepaf_place *place);
/* The parts of "host:port" or "[address]:port"; host_p has room for STEPAF_PLACE_HOST_MAX + 1.
 * False: it is something else. */
bool stepaf_place_split(const char *text, char *host_p, uint16_t *port_p);

#endif
