/* SPDX-License-Identifier: Apache-2.0 */
/* The transports of this build, best first, as transport/registry.def lists them. */
#include "config.h"

#include "transport/transport.h"

#define TRANSPORT(name) extern const struct stepaf_transport_ops stepaf_##name##_ops;
#include "settings/all.def"

const struct stepaf_transport_ops *const stepaf_transports[] = {
#define TRANSPORT(name) &stepaf_##name##_ops,
#include "settings/all.def"
    NULL,
};
