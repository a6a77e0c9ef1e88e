/* SPDX-License-Identifier: Apache-2.0 */
/* Compile-time index of each transport of this build in the registry. */
#ifndef STEPAF_TRANSPORT_REGISTRY_H
#define STEPAF_TRANSPORT_REGISTRY_H

#include "config.h"

enum stepaf_transport_index {
#define TRANSPORT(name) STEPAF_TRANSPORT_##name,
#include "settings/all.def"
    STEPAF_TRANSPORTS_BUILT
};

#endif
