/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's place in a job that no launcher describes: from settings, from what torchrun puts into
 * the environment, or from the host names of a Kubernetes StatefulSet. */
#ifndef STEPAF_BOOT_CONTROL_PLACE_H
#define STEPAF_BOOT_CONTROL_PLACE_H

#include "base/proof.h"
#include "settings/settings.h"

enum {
    STEPAF_PLACE_HOST_MAX = 255,
    STEPAF_PLACE_MEET_MAX = STEPAF_PLACE_HOST_MAX + sizeof("[]:65535"),
    STEPAF_PLACE_SECRET_MAX = 1024,
    /* torchrun's agent itself listens at MASTER_PORT, and a second job often gets the next port. */
    STEPAF_PLACE_TORCH_PORTS = 1000
};

struct stepaf_place {
    int rank;
    int size;
    char meet[STEPAF_PLACE_MEET_MAX]; /* "host:port", for messages */
    char host[STEPAF_PLACE_HOST_MAX + 1];
    uint16_t port;
    uint16_t first_port, last_port; /* to listen at, except the meeting point; 0: any */
    bool is_loopback;               /* the host is an address that reaches this host only */
    bool has_secret;
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
};

/* Return whether torchrun, or a launcher that sets the same variables, has started this process. */
bool stepaf_place_is_torch(void);

/* Find this rank's place; @a host_name is this host's name. Returns STEPAF_ERR_SETTING if a setting
 * is missing or invalid. */
stepaf_status_t stepaf_place_find(const struct stepaf_env *env, const char *host_name,
                                  struct stepaf_place *place_p);

/* Find the place of a process that is to take a lost rank's place, according to STEPAF_JOIN, or one
 * of the places for additional ranks, which the size includes. meet is only for messages. */
stepaf_status_t stepaf_place_return(const struct stepaf_env *env, const char *host_name,
                                    struct stepaf_place *place_p);
/* Find only the secret: set has_secret and key. */
stepaf_status_t stepaf_place_find_secret(const struct stepaf_env *env, struct stepaf_place *place);
/* Split "host:port" or "[address]:port"; host_p has space for STEPAF_PLACE_HOST_MAX + 1 characters.
 * Returns false if @a text is neither. */
bool stepaf_place_split(const char *text, char *host_p, uint16_t *port_p);

#endif
