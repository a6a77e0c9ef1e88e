/* SPDX-License-Identifier: Apache-2.0 */
/* Log messages: the only output that the library writes by itself. */
#ifndef STEPAF_LOG_H
#define STEPAF_LOG_H

#include <stepaf/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Level of a message. A message is written if its level is at most STEPAF_LOG_LEVEL (warn unless
 *  set). */
typedef enum stepaf_log_level {
    STEPAF_LOG_NONE = 0,
    STEPAF_LOG_ERROR = 1,
    STEPAF_LOG_WARN = 2,
    STEPAF_LOG_INFO = 3,
    STEPAF_LOG_DEBUG = 4,
    STEPAF_LOG_TRACE = 5 /* every message between ranks: slow */
} stepaf_log_level_t;

/** Callback that receives one message, without a newline. Called from any thread that calls the
 *  library and from the progress thread, never concurrently. Must not call the library. */
typedef void (*stepaf_log_cb_t)(stepaf_log_level_t level, const char *file, int line,
                                const char *message, void *arg);

/** Set the callback that receives the log messages of the whole process; NULL removes it.
 *
 *  Without a callback, messages go to standard error, or to the file that the setting
 *  STEPAF_LOG_FILE names, as lines: "2026-01-31T23:59:59.999Z [host:pid rank] file:line LEVEL
 *  message", where rank is the world rank and the time is UTC. A message that cannot be written (no
 *  reader, a reader stalled for a second, a file size limit) is dropped without SIGPIPE or SIGXFSZ.
 *
 *  Any thread. Does not block. */
STEPAF_API void stepaf_log_set_callback(stepaf_log_cb_t callback, void *arg);

#ifdef __cplusplus
}
#endif
#endif
