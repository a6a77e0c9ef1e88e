/* SPDX-License-Identifier: Apache-2.0 */
/* libmlx5: functions that only NVIDIA's NICs have. */
#include <infiniband/mlx5dv.h>

#include "transport/verbs/provider.h"

static bool real_is_mlx5(struct ibv_device *device)
{
    return mlx5dv_is_supported(device);
}

static unsigned real_ports(struct ibv_context *context)
{
    struct mlx5dv_context attr = {.comp_mask = MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS};

    if (mlx5dv_query_device(context, &attr) ||
        !(attr.comp_mask & MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS))
        return 0;
    return attr.num_lag_ports > 1 ? attr.num_lag_ports : 0;
}

static int real_set_port(struct ibv_qp *qp, uint8_t port)
{
    return mlx5dv_modify_qp_lag_port(qp, port);
}

const struct stepaf_verbs_lag_ops stepaf_verbs_lag_real = {
    .is_mlx5 = real_is_mlx5,
    .ports = real_ports,
    .set_port = real_set_port,
};
