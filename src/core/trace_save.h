/* SPDX-License-Identifier: Apache-2.0 */
/* Adding a rank's events to a trace file that other ranks also add to. A thread does it: a slow or
 * hung file system must not delay anybody. */
#ifndef STEPAF_CORE_TRACE_SAVE_H
#define STEPAF_CORE_TRACE_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Start and end of a file, and the separator between two events. */
#define STEPAF_TRACE_HEAD "[\n"
#define STEPAF_TRACE_TAIL "\n]\n"
#define STEPAF_TRACE_BETWEEN ",\n"

struct stepaf_trace_text {
    const char *path;
    /* Events, with STEPAF_TRACE_BETWEEN before and STEPAF_TRACE_TAIL behind them; malloc()ed, freed
     * by the saver. NULL: out of memory, which is reported. */
    char *text;
    size_t bytes;
    int world_rank;
    int64_t patience_us; /* how long to wait for other ranks that add their events */
};

struct stepaf_trace_saver;

/* Begin to add the events. Failures are logged; errno says why there is no text. NULL: no thread
 * can be started, and the work is done. */
struct stepaf_trace_saver *stepaf_trace_save_begin(const struct stepaf_trace_text *what);
/* Return whether the work is done; @a saver is then freed. */
bool stepaf_trace_save_is_over(struct stepaf_trace_saver *saver);
/* Wait until the work is done, if @a saver is not NULL, for at most @a patience_us. After that, the
 * thread continues by itself. */
void stepaf_trace_save_end(struct stepaf_trace_saver *saver, int64_t patience_us);

#endif
