/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing, memory, and the table. */
#include "toy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/fork.h"

static bool toy_random(uint64_t *number_p)
{
    return getrandom(number_p, sizeof(*number_p), 0) == sizeof(*number_p) && *number_p;
}

/* There is no machine without sockets of this kind. */
static bool toy_probe(const struct stepaf_env *env, char *reason)
{
    (void)env;
    (void)reason;
    return true;
}

static void toy_close(struct stepaf_transport *transport)
{
    struct stepaf_toy *toy = (struct stepaf_toy *)transport;

    for (uint32_t p = 0; p < toy->n_peers; p++)
        stepaf_fork_close(toy->links[p].fd);
    while (toy->registrations) {
        struct stepaf_toy_registration *first = toy->registrations;
        toy->registrations = first->next;
        free(first);
    }
    free(toy->links);
    free(toy);
}

static stepaf_status_t toy_open(struct stepaf_upcalls *up, unsigned n_peers,
                                struct stepaf_transport **transport_p)
{
    struct stepaf_toy *toy = calloc(1, sizeof(*toy));
    struct stepaf_toy_link *links = calloc(n_peers, sizeof(*links));

    if (!toy || !links) {
        free(links);
        free(toy);
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    }
    toy->base.up = up;
    toy->links = links;
    bool good = toy_random(&toy->name) && toy_random(&toy->token);
    /* All sockets are there before a peer hears of them. */
    while (good && toy->n_peers < n_peers) {
        good = stepaf_toy_socket(toy, &links[toy->n_peers], toy->n_peers);
        toy->n_peers += good;
    }
    if (!good) {
        stepaf_status_t status = stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                                  "toy: cannot open: %s", strerror(errno));
        toy_close(&toy->base);
        return status;
    }
    *transport_p = &toy->base;
    return STEPAF_OK;
}

static stepaf_status_t toy_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    struct stepaf_toy *toy = (struct stepaf_toy *)transport;
    struct stepaf_toy_registration *registration = calloc(1, sizeof(*registration));

    if (!registration)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    if (!toy_random(&registration->key)) {
        free(registration);
        return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_NONE, "toy: no key for memory");
    }
    registration->owner = toy;
    registration->id = mem->id;
    registration->next = toy->registrations;
    mem->registration[transport->index] = toy->registrations = registration;
    return STEPAF_OK;
}

static void toy_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    struct stepaf_toy_registration **at = &((struct stepaf_toy *)transport)->registrations;
    struct stepaf_toy_registration *registration = mem->registration[transport->index];

    while (*at && *at != registration)
        at = &(*at)->next;
    if (registration)
        *at = registration->next;
    free(registration);
    mem->registration[transport->index] = NULL;
}

static void toy_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack)
{
    const struct stepaf_toy *toy = (const struct stepaf_toy *)transport;

    stepaf_pack_u64(pack, toy->name);
    stepaf_pack_u64(pack, toy->token);
}

static void toy_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack)
{
    const struct stepaf_toy_registration *registration = mem->registration[transport->index];

    stepaf_pack_u64(pack, registration->key);
}

static stepaf_status_t toy_import_mem(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p)
{
    struct stepaf_toy_rmem *rmem = malloc(sizeof(*rmem));

    (void)link;
    if (!rmem)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    *rmem = (struct stepaf_toy_rmem){{id, bytes}, stepaf_unpack_u64(unpack)};
    *rmem_p = &rmem->base;
    return STEPAF_OK;
}

static void toy_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem)
{
    (void)link;
    free(rmem);
}

static void toy_query_memory(struct stepaf_transport *transport, size_t *per_link_p,
                             size_t *staging_p)
{
    *per_link_p = sizeof(struct stepaf_toy_link);
    *staging_p = sizeof(((struct stepaf_toy *)transport)->piece);
}

const struct stepaf_transport_ops stepaf_toy_ops = {
    .name = "toy",
    .probe = toy_probe,
    .open = toy_open,
    .close = toy_close,
    .reg_mem = toy_reg_mem,
    .dereg_mem = toy_dereg_mem,
    .pack_address = toy_pack_address,
    .pack_mem = toy_pack_mem,
    .connect = stepaf_toy_connect,
    .disconnect = stepaf_toy_disconnect,
    .import_mem = toy_import_mem,
    .release_mem = toy_release_mem,
    .post = stepaf_toy_post,
    .progress = stepaf_toy_progress,
    .check_peers = stepaf_toy_check_peers,
    .query_memory = toy_query_memory,
};
