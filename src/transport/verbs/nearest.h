/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices, where the settings name none. */
#ifndef STEPAF_TRANSPORT_VERBS_NEAREST_H
#define STEPAF_TRANSPORT_VERBS_NEAREST_H

#include "transport/verbs/verbs.h"

enum { STEPAF_VERBS_CANDIDATES = 64 };

/* Devices that may be taken; fewer as they are found not to do. */
struct stepaf_verbs_candidates {
    struct ibv_device *device[STEPAF_VERBS_CANDIDATES];
    unsigned n;
    char refused[STEPAF_VERBS_NAME]; /* the last that could not be opened; "": none */
    int error;                       /* and by which errno */
};

struct stepaf_verbs_choice {
    struct ibv_device *device[STEPAF_VERBS_RAILS_MAX];
    uint8_t port[STEPAF_VERBS_RAILS_MAX];
    unsigned n;
    char why[STEPAF_TOPO_WHY];
    const char *how;
};

/* Why a device is of no use to this transport, in words that follow its name; NULL: it is of
 * use. */
const char *stepaf_verbs_unusable(const struct stepaf_verbs_provider *provider,
                                  const struct stepaf_env *env, const struct ibv_device *device);

/* Its first active port; 0: none, *error_p: 0 or why it could not be opened. */
uint8_t stepaf_verbs_active_port(const struct stepaf_verbs_provider *provider,
                                 struct ibv_device *device, int *error_p);

void stepaf_verbs_candidates_find(const struct stepaf_verbs_provider *provider,
                                  const struct stepaf_env *env, struct ibv_device **list, int n,
                                  struct stepaf_verbs_candidates *candidates_p);
void stepaf_verbs_candidates_drop(struct stepaf_verbs_candidates *candidates,
                                  const struct ibv_device *device);

/* Choose those that are nearest to the GPU, or to this thread's core, and have an active port. What
 * has none is dropped. False: nothing is left. */
bool stepaf_verbs_nearest(const struct stepaf_verbs_provider *provider, const char *gpu,
                          struct stepaf_verbs_candidates *candidates,
                          struct stepaf_verbs_choice *choice_p);

#endif
