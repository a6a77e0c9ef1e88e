/* SPDX-License-Identifier: Apache-2.0 */
/* What the made-up libfabric knows of GPU memory. */
#ifndef STEPAF_TEST_OFI_GPU_H
#define STEPAF_TEST_OFI_GPU_H

#include "transport/ofi/fabric.h"

struct ofi_gpu {
    unsigned n_listed;     /* of each provider's domains, so many take it, if that is asked for */
    unsigned n_promising;  /* endpoints that promise all they can; those behind them, nothing */
    int by_card;           /* what they say to FI_HMEM_P2P_REQUIRED: 0, or an error; */
    int without_calls;     /* and to FI_OPT_CUDA_API_PERMITTED */
    int refuse_enable;     /* endpoints that are to take it end by this error */
    int refuse;            /* registrations of it end by this error, */
    unsigned refuse_after; /* behind so many */
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
