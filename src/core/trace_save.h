/* SPDX-License-Identifier: Apache-2.0 */
/* Adding a rank's events to a trace file that others add to as well; by a thread, since a file
 * system that takes its time, or hangs, is to hold up nobody. */
#ifndef STEPAF_CORE_TRACE_SAVE_H
#define STEPAF_CORE_TRACE_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a file begins and ends, and what is between two events. */
#define STEPAF_TRACE_HEAD "[\n"
#define STEPAF_TRACE_TAIL "\n]\n"
#define STEPAF_TRACE_BETWEEN ",\n"

struct stepaf_trace_text {
    const char *path;
    /* Events, with STEPAF_TRACE_BETWEEN before them and STEPAF_TRACE_TAIL behind; malloc()ed, is
     * freed. NULL: there was no memory for it, which is said. */
    char *text;
    size_t bytes;
    int world_rank;
    int64_t patience_us; /* how long to wait for others that add theirs */
};

struct stepaf_trace_saver;

/* Begin to add it. What goes wrong is logged; errno says why there is no text. NULL: there can be
 * no thread, and it is done. */
struct stepaf_trace_saver *stepaf_trace_save_begin(const struct stepaf_trace_text *what);
/* Whether it is done; then @a saver is gone. */
bool stepaf_trace_save_is_over(struct stepaf_trace_saver *saver);
/* Wait until it is, if not NULL, but no longer than that: then the thread goes on by itself. */
void stepaf_trace_save_end(struct stepaf_trace_saver *saver, int64_t patience_us);

#endif
