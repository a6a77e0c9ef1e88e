/* SPDX-License-Identifier: Apache-2.0 */
#include "ofi_gpu.h"

#include "transport/side.h"

enum { OPT_CUDA_API_PERMITTED = 10 }; /* of rdma/fi_endpoint.h since libfabric 1.18 */

struct ofi_gpu ofi_gpu;

static int set_option(fid_t fid, int level, int name, const void *value, size_t bytes)
{
    (void)fid;
    side_must(level == FI_OPT_ENDPOINT, "an option of an endpoint");
    bool promises =
        ofi_gpu.n_options++ / 2 < ofi_gpu.n_promising; /* an endpoint is asked for two */
    if (name == FI_OPT_FI_HMEM_P2P) {
        side_must(bytes == sizeof(int) && *(const int *)value == FI_HMEM_P2P_REQUIRED, "P2P");
        return promises ? ofi_gpu.by_card : -FI_EOPNOTSUPP;
    }
    side_must(name == OPT_CUDA_API_PERMITTED && bytes == sizeof(bool) && !*(const bool *)value,
              "CUDA_API_PERMITTED");
    return promises ? ofi_gpu.without_calls : -FI_EOPNOTSUPP;
}

struct fi_ops_ep ofi_gpu_ep = {.size = sizeof(ofi_gpu_ep), .setopt = set_option};

int ofi_gpu_register(const struct fi_mr_attr *attr)
{
    if (attr->iface == FI_HMEM_SYSTEM)
        return 0;
    if (ofi_gpu.refuse && !ofi_gpu.refuse_after--)
        return ofi_gpu.refuse;
    ofi_gpu.iface = (int)attr->iface;
    ofi_gpu.device = attr->device.cuda;
    ofi_gpu.base = attr->mr_iov->iov_base;
    ofi_gpu.bytes = attr->mr_iov->iov_len;
    return 0;
}
