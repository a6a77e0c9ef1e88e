/* SPDX-License-Identifier: Apache-2.0 */
/* Where the model is. */
#ifndef DECODE_MODEL_DIR_H
#define DECODE_MODEL_DIR_H

#include "reason.h"

/* Find the model's directory, *dir_p for free(): @a given, or, if that is NULL, the MoE model
 * that comes with the program: beside it, where it was to be installed, or in the sources. */
int model_dir_find(const char *given, char **dir_p, struct reason *reason);

#endif
