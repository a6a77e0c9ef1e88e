/* SPDX-License-Identifier: Apache-2.0 */
/* --trace: the activities of all ranks in one file for chrome://tracing and Perfetto. */
#ifndef DECODE_TRACE_FILE_H
#define DECODE_TRACE_FILE_H

#include <stepaf/stepaf.h>

#include "blob.h"
#include "spans.h"
#include "summary.h"

/* Put this rank's spans and the newest of the library's records into *blob. */
int trace_put(stepaf_context_h ctx, const struct place *place, const struct spans *spans,
              struct blob *blob, struct reason *reason);

/* Write the file from what all @a n ranks have put, @a offsets as from agree_gather. */
int trace_write(const char *path, const char *all, const size_t *offsets, int n,
                struct reason *reason);

#endif
