/* SPDX-License-Identifier: Apache-2.0 */
/* Who talks to whom. Attention rank i and FFN rank f are peers if i and f, modulo the number of
 * lanes, are the same; a full mesh is one lane. A rank knows its peers by index, in ascending order
 * of their ranks. This is the one place that converts between index and rank. */
#ifndef STEPAF_CORE_MESH_H
#define STEPAF_CORE_MESH_H

#include <stdbool.h>

#include "settings/settings.h"

/* The mesh as one rank sees it. */
struct stepaf_mesh {
    uint32_t lanes;
    uint32_t lane; /* this rank's */
    uint32_t slot; /* its index among the peers of each of its peers */
};

/* Make the mesh of rank @a own_rank of its group, in a job of so many ranks, from the settings.
 * STEPAF_ERR_SETTING if a lane would lack a role: each rank needs a peer. */
stepaf_status_t stepaf_mesh_make(const struct stepaf_env *env, uint32_t n_attention, uint32_t n_ffn,
                                 uint32_t own_rank, struct stepaf_mesh *mesh_p);

/* How many of the other group's @a size ranks are peers. */
static inline uint32_t stepaf_mesh_peers(const struct stepaf_mesh *mesh, uint32_t size)
{
    return (size - mesh->lane + mesh->lanes - 1) / mesh->lanes;
}

/* The rank of peer @a index. */
static inline uint32_t stepaf_mesh_rank(const struct stepaf_mesh *mesh, uint32_t index)
{
    return mesh->lane + index * mesh->lanes;
}

/* Whether @a rank of the other group is a peer. */
static inline bool stepaf_mesh_has(const struct stepaf_mesh *mesh, uint32_t rank)
{
    return rank % mesh->lanes == mesh->lane;
}

/* The index of peer @a rank. */
static inline uint32_t stepaf_mesh_index(const struct stepaf_mesh *mesh, uint32_t rank)
{
    return rank / mesh->lanes;
}

#endif
