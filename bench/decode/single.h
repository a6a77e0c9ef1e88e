/* SPDX-License-Identifier: Apache-2.0 */
/* --single: everything in one process, without the library. */
#ifndef DECODE_SINGLE_H
#define DECODE_SINGLE_H

#include "options.h"

/* Returns the exit code; prints everything, the reason of a failure too. */
int single_run(const struct options *options);

#endif
