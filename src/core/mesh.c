/* SPDX-License-Identifier: Apache-2.0 */
/* The mesh: computing the number of lanes and a rank's place in them. */
#include "core/mesh.h"

#include "base/error.h"

static uint32_t greatest_common_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Lanes numbered from the smaller group's size on have none of its ranks. */
static stepaf_status_t refuse_lanes(uint32_t lanes, uint32_t n_attention, uint32_t n_ffn)
{
    uint32_t least = n_attention < n_ffn ? n_attention : n_ffn;

    return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                            "STEPAF_LANES=%u: lanes %u to %u have no %s rank in a job of %u "
                            "attention and %u FFN ranks; at most %u lanes have both",
                            lanes, least, lanes - 1, n_attention < n_ffn ? "attention" : "FFN",
                            n_attention, n_ffn, least);
}

stepaf_status_t stepaf_mesh_make(const struct stepaf_env *env, uint32_t n_attention, uint32_t n_ffn,
                                 uint32_t own_rank, struct stepaf_mesh *mesh_p)
{
    uint32_t lanes = 1;

    if (env->mesh == STEPAF_ENV_MESH_lane) {
        lanes = (uint32_t)env->lanes;
        if (!lanes)
            lanes = greatest_common_divisor(n_attention, n_ffn);
    } else if (env->lanes) {
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                "STEPAF_LANES=%u requires STEPAF_MESH=lane", (unsigned)env->lanes);
    }
    if (lanes > n_attention || lanes > n_ffn)
        return refuse_lanes(lanes, n_attention, n_ffn);
    *mesh_p = (struct stepaf_mesh){lanes, own_rank % lanes, own_rank / lanes};
    return STEPAF_OK;
}
