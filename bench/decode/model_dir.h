/* SPDX-License-Identifier: Apache-2.0 */
/* Location of the model. */
#ifndef DECODE_MODEL_DIR_H
#define DECODE_MODEL_DIR_H

#include "reason.h"

/* Find the model's directory, *dir_p for free(): @a given; if that is NULL, the MoE model that
 * comes with the program: beside the program, in the installation directory, or in the sources. */
int model_dir_find(const char *given, char **dir_p, struct reason *reason);

#endif
