/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of signals that are the program's, beside libraries that install their own as soon as they
 * are loaded. */
#ifndef STEPAF_BASE_HANDLERS_H
#define STEPAF_BASE_HANDLERS_H

/* As dlopen(), for good, but that handlers stay as they are, and what is opened is kept from the
 * numbers 0 to 2. */
void *stepaf_load_without_handlers(const char *name);

#endif
