/* SPDX-License-Identifier: Apache-2.0 */
/* What probe_gpu of transports is made of. */
#ifndef STEPAF_TRANSPORT_TRY_GPU_H
#define STEPAF_TRANSPORT_TRY_GPU_H

#include "device/gpu.h"
#include "transport/transport.h"

/* Open a transport beside any context, have it take some memory of @a gpu, and say in words how that
 * is reached, or why it could not be tried. @a more: adds what else there is to say; or NULL. */
void stepaf_transport_try_gpu(const struct stepaf_transport_ops *ops, const struct stepaf_env *env,
                              struct stepaf_gpu *gpu,
                              void (*more)(const struct stepaf_transport *transport, char *text),
                              char *text);

#endif
