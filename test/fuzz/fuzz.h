/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzzer is: one function that takes any bytes, libFuzzer's entry point. In the ordinary
 * build driver.c calls it; with clang -fsanitize=fuzzer libFuzzer does, without driver.c. */
#ifndef STEPAF_TEST_FUZZ_H
#define STEPAF_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A promise of the code under test; broken, the input is a finding. */
#define FUZZ_CHECK(condition_)                                                       \
    do {                                                                             \
        if (!(condition_)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition_); \
            abort();                                                                 \
        }                                                                            \
    } while (0)

#endif
