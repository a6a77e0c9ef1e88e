/* SPDX-License-Identifier: Apache-2.0 */
/* Keep the program's signal handlers when loading libraries that install their own as soon as they
 * are loaded. */
#ifndef STEPAF_BASE_HANDLERS_H
#define STEPAF_BASE_HANDLERS_H

/* Like dlopen(), never closed, but signal handlers stay as they are, and files that are opened do
 * not get the numbers 0 to 2. */
void *stepaf_load_without_handlers(const char *name);

#endif
