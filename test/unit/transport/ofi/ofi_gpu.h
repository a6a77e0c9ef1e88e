/* SPDX-License-Identifier: Apache-2.0 */
/* What the made-up libfabric knows of GPU memory. */
#ifndef STEPAF_TEST_OFI_GPU_H
#define STEPAF_TEST_OFI_GPU_H

#include "transport/ofi/fabric.h"

struct ofi_gpu {
    bool is_listed;     /* providers take it, if that is asked for */
    bool by_card;       /* and promise FI_HMEM_P2P_REQUIRED, */
    bool without_calls; /* or that they call nothing of the GPU's */
    int refuse;         /* registrations of it end by this error */
    /* of the last that was registered */
    int iface, device;
    uint8_t *base;
    size_t bytes;
    /* of the endpoints: options that were set */
    unsigned n_options;
};
extern struct ofi_gpu ofi_gpu; /* ofi_fabric_reset sets all to zero */
extern struct fi_ops_ep ofi_gpu_ep;

/* Something is to be registered: 0, or the error. */
int ofi_gpu_register(const struct fi_mr_attr *attr);

#endif
