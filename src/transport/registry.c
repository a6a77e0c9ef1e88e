/* SPDX-License-Identifier: Apache-2.0 */
/* The transports of this build, best first: a new one is a directory and its lines here. */
#include "config.h"

#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#ifdef HAVE_VERBS
#include "transport/verbs/verbs.h"
#endif

const struct stepaf_transport_ops *const stepaf_transports[] = {
    &stepaf_shm_ops,
#ifdef HAVE_VERBS
    &stepaf_verbs_ops,
#endif
    &stepaf_tcp_ops,
    NULL,
};
