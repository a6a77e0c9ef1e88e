/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled kernels, embedded in the library as bytes. */
#include "device/cuda/driver.h"

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".globl stepaf_kernels_image\n"
        ".hidden stepaf_kernels_image\n"
        ".type stepaf_kernels_image, @object\n"
        "stepaf_kernels_image:\n"
        ".incbin \"" STEPAF_KERNELS_FATBIN "\"\n"
        ".size stepaf_kernels_image, . - stepaf_kernels_image\n"
        ".popsection\n");
