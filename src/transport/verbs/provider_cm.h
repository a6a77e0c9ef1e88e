/* SPDX-License-Identifier: Apache-2.0 */
/* Functions shared by the files that call librdmacm. */
#ifndef STEPAF_TRANSPORT_VERBS_PROVIDER_CM_H
#define STEPAF_TRANSPORT_VERBS_PROVIDER_CM_H

#include <sys/socket.h>

#include <rdma/rdma_cma.h>

#include "transport/verbs/provider.h"

void stepaf_verbs_cm_to_socket(const union ibv_gid *address, uint16_t port,
                               struct sockaddr_storage *storage_p);
/* As in stepaf_verbs_cm_ops. */
bool stepaf_verbs_cm_is_on(const struct rdma_cm_id *id, const struct ibv_context *context,
                           uint8_t port);
int stepaf_verbs_cm_address(struct rdma_event_channel *channel, struct ibv_context *context,
                            uint8_t port, union ibv_gid *address_p);

#endif
