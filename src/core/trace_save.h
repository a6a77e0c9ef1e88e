/* SPDX-License-Identifier: Apache-2.0 */
/* Adding a rank's events to a trace file that other ranks add to as well; with a thread, since a
 * file system that is slow, or hangs, must not delay the rank. */
#ifndef STEPAF_CORE_TRACE_SAVE_H
#define STEPAF_CORE_TRACE_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a file begins and ends, and what separates two events. */
#define STEPAF_TRACE_HEAD "[\n"
#define STEPAF_TRACE_TAIL "\n]\n"
#define STEPAF_TRACE_BETWEEN ",\n"

struct stepaf_trace_text {
    const char *path;
    /* Events, with STEPAF_TRACE_BETWEEN before and STEPAF_TRACE_TAIL after them; malloc()ed, is
     * freed. NULL: out of memory, which is logged. */
    char *text;
    size_t bytes;
    int world_rank;
    int64_t patience_us; /* how long to wait for others that add their events */
};

struct stepaf_trace_saver;

/* Begin to add the text. Errors are logged; errno says why there is no text. NULL: no thread could
 * be made, and the text has been added. */
struct stepaf_trace_saver *stepaf_trace_save_begin(const struct stepaf_trace_text *what);
/* Whether it is done; then @a saver is gone. */
bool stepaf_trace_save_is_over(struct stepaf_trace_saver *saver);
/* Wait until it is done, if not NULL, but no longer than that: the thread then continues alone. */
void stepaf_trace_save_end(struct stepaf_trace_saver *saver, int64_t patience_us);

#endif
