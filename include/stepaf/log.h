/* SPDX-License-Identifier: Apache-2.0 */
/* Log messages: the only output that the library makes by itself. */
#ifndef STEPAF_LOG_H
#define STEPAF_LOG_H

#include <stepaf/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Level of a message, which is written if its level is at most STEPAF_LOG_LEVEL (warn unless
 *  set). */
typedef enum stepaf_log_level {
    STEPAF_LOG_NONE = 0,
    STEPAF_LOG_ERROR = 1,
    STEPAF_LOG_WARN = 2,
    STEPAF_LOG_INFO = 3,
    STEPAF_LOG_DEBUG = 4,
    STEPAF_LOG_TRACE = 5 /* each message between ranks: slow */
} stepaf_log_level_t;

/** Function that receives one message, without a newline. Called from any thread that calls the
 *  library and from the progress thread, never concurrently. Must not call the library. */
typedef void (*stepaf_log_cb_t)(stepaf_log_level_t level, const char *file, int line,
                                const char *message, void *arg);

/** Send the messages of the whole process to @a callback instead of standard error; NULL
 *  restores that. Any thread. Does not block.
 *
 *  Otherwise a message goes to standard error, or to the setting STEPAF_LOG_FILE. One that cannot be
 *  written is lost, without a signal: nobody reads there, nobody has read for a second, or the file
 *  may not grow. */
STEPAF_API void stepaf_log_set_callback(stepaf_log_cb_t callback, void *arg);

#ifdef __cplusplus
}
#endif
#endif
