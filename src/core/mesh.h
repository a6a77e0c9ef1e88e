/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are peers. Attention rank i and FFN rank f are peers if i and f are equal modulo the
 * number of lanes; a full mesh is one lane. A rank knows its peers by index, in ascending order of
 * their ranks. This file alone converts between index and rank. */
#ifndef STEPAF_CORE_MESH_H
#define STEPAF_CORE_MESH_H

#include <stdbool.h>

#include "settings/settings.h"

/* The mesh as one rank sees it. */
struct stepaf_mesh {
    uint32_t lanes;
    uint32_t lane; /* this rank's */
    uint32_t slot; /* this rank's index in the peer list of each of its peers */
};

/* Make the mesh of rank @a own_rank of its group, in a job of these sizes, by the settings.
 * STEPAF_ERR_SETTING: a lane would lack a role; each rank needs a peer. */
stepaf_status_t stepaf_mesh_make(const struct stepaf_env *env, uint32_t n_attention, uint32_t n_ffn,
                                 uint32_t own_rank, struct stepaf_mesh *mesh_p);

/* Return how many of the other group's @a size ranks are peers. */
static inline uint32_t stepaf_mesh_peers(const struct stepaf_mesh *mesh, uint32_t size)
{
    return (size - mesh->lane + mesh->lanes - 1) / mesh->lanes;
}

/* Return the rank of peer @a index. */
static inline uint32_t stepaf_mesh_rank(const struct stepaf_mesh *mesh, uint32_t index)
{
    return mesh->lane + index * mesh->lanes;
}

/* Return whether @a rank of the other group is a peer. */
static inline bool stepaf_mesh_has(const struct stepaf_mesh *mesh, uint32_t rank)
{
    return rank % mesh->lanes == mesh->lane;
}

/* Return the index of peer @a rank. */
static inline uint32_t stepaf_mesh_index(const struct stepaf_mesh *mesh, uint32_t rank)
{
    return rank / mesh->lanes;
}

#endif
