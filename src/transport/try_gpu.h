/* SPDX-License-Identifier: Apache-2.0 */
/* Shared implementation of the probe_gpu operation of transports. */
#ifndef STEPAF_TRANSPORT_TRY_GPU_H
#define STEPAF_TRANSPORT_TRY_GPU_H

#include "device/gpu.h"
#include "transport/transport.h"

/* Open a transport outside of any context, register some memory of @a gpu with it, and say, as
 * text, how that memory is reached, or why it could not be tried. @a more: appends further text; or
 * NULL. */
void stepaf_transport_try_gpu(const struct stepaf_transport_ops *ops, const struct stepaf_env *env,
                              struct stepaf_gpu *gpu,
                              void (*more)(const struct stepaf_transport *transport, char *text),
                              char *text);

#endif
