/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of devices where the settings name none. */
#ifndef STEPAF_TRANSPORT_VERBS_NEAREST_H
#define STEPAF_TRANSPORT_VERBS_NEAREST_H

#include "transport/verbs/verbs.h"

enum { STEPAF_VERBS_CANDIDATES = 64 };

/* Devices that may be chosen; unsuitable ones are removed as they are found. */
struct stepaf_verbs_candidates {
    struct ibv_device *device[STEPAF_VERBS_CANDIDATES];
    unsigned n;
    char refused[STEPAF_VERBS_NAME]; /* the last device that could not be opened; "": none */
    int error;                       /* errno of that failure */
};

struct stepaf_verbs_choice {
    struct ibv_device *device[STEPAF_VERBS_RAILS_MAX];
    uint8_t port[STEPAF_VERBS_RAILS_MAX];
    unsigned n;
    char why[STEPAF_TOPO_WHY];
    const char *how;
};

/* Return why this transport cannot use a device, as text that follows the device's name; NULL if it
 * can. */
const char *stepaf_verbs_unusable(const struct stepaf_verbs_provider *provider,
                                  const struct stepaf_env *env, const struct ibv_device *device);

/* Return the device's first active port; 0 if it has none: *error_p is then 0, or why the device
 * could not be opened. */
uint8_t stepaf_verbs_active_port(const struct stepaf_verbs_provider *provider,
                                 struct ibv_device *device, int *error_p);

void stepaf_verbs_candidates_find(const struct stepaf_verbs_provider *provider,
                                  const struct stepaf_env *env, struct ibv_device **list, int n,
                                  struct stepaf_verbs_candidates *candidates_p);
void stepaf_verbs_candidates_drop(struct stepaf_verbs_candidates *candidates,
                                  const struct ibv_device *device);

/* Choose the candidates with an active port that are nearest to the GPU, or to this thread's core.
 * Drop candidates without one. Returns false if none is left. */
bool stepaf_verbs_nearest(const struct stepaf_verbs_provider *provider, const char *gpu,
                          struct stepaf_verbs_candidates *candidates,
                          struct stepaf_verbs_choice *choice_p);

#endif
