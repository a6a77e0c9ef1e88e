/* SPDX-License-Identifier: Apache-2.0 */
/* --single: everything in one process, without the library. */
#ifndef DECODE_SINGLE_H
#define DECODE_SINGLE_H

#include "options.h"

/* Run. Prints everything, including the reason of a failure; returns the exit code. */
int single_run(const struct options *options);

#endif
