/* SPDX-License-Identifier: Apache-2.0 */
/* What src/device/cuda/kernels.cu does, in C and by one thread for all blocks. The pieces of a
 * group are the tensor's bytes as they are, with one word for all: both ends are this device's. */
#ifndef STEPAF_TEST_CPU_KERNELS_H
#define STEPAF_TEST_CPU_KERNELS_H

#include <stdbool.h>

#include "device/kernels.h"

/* Run a kernel to its end. */
void cpu_kernel_run(enum stepaf_kernel kernel, const struct stepaf_kernel_args *args,
                    uint32_t blocks);

/* kernels_times.c: those with args of their own, of which each has a pointer. */
void cpu_kernel_take_time(const void *args);
void cpu_kernel_note_arrivals(const void *args);
void cpu_kernel_tell_time(const void *args);

/* ---- inside ---- */

/* kernels_some.c: wait for enough answers; for those who are late. */
void cpu_kernel_gate_some(const struct stepaf_kernel_args *args);
void cpu_kernel_settle(const struct stepaf_kernel_args *args);

bool cpu_kernel_has_failed(const struct stepaf_kernel_args *args);
void cpu_kernel_note_fault(const struct stepaf_kernel_args *args, uint32_t fault, uint32_t peer);
/* Whether a tensor's head has come, or tells_all of another one. */
bool cpu_kernel_is_told(const struct stepaf_kernel_args *args, const void *tensor, uint64_t stamp);
/* Take what is in that, and how many bytes there are. */
void cpu_kernel_take_head(const struct stepaf_kernel_args *args, uint32_t i, uint64_t stamp);
void cpu_kernel_clear_mark(const struct stepaf_kernel_args *args, uint32_t i);

#endif
