/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: "time [host:pid rank] file:line LEVEL message". Each is one write() to standard error,
 * to STEPAF_LOG_FILE, or to the user's callback. Never on the hot path. */
#ifndef STEPAF_BASE_LOG_H
#define STEPAF_BASE_LOG_H

#include <stepaf/log.h>

/* The process's current level. The macros read it, so that a silent call costs one compare. */
extern int stepaf_log_level_now;

/* Set level and destination; a @a file of NULL or "" is standard error. Called once per context;
 * the last call wins. Failure to open the file is logged to standard error. */
void stepaf_log_configure(stepaf_log_level_t level, const char *file);

/* In a child of fork(): another thread of the parent may have been logging. Async-signal-safe. */
void stepaf_log_forked(void);

/* Set the world rank that lines begin with; -1 shows "-". */
void stepaf_log_set_rank(int rank);

void stepaf_log_write(stepaf_log_level_t level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Write @a text, whose lines each end in a newline, to the destination of log lines, at any level,
 * and without their prefixes: for output that was requested by name. A user's callback gets it line
 * by line, as STEPAF_LOG_INFO. */
void stepaf_log_print(const char *text);

#define stepaf_log_(level_, ...)                                          \
    (__atomic_load_n(&stepaf_log_level_now, __ATOMIC_RELAXED) >= (level_) \
         ? stepaf_log_write((level_), __FILE__, __LINE__, __VA_ARGS__)    \
         : (void)0)
#define stepaf_log_error(...) stepaf_log_(STEPAF_LOG_ERROR, __VA_ARGS__)
#define stepaf_log_warn(...) stepaf_log_(STEPAF_LOG_WARN, __VA_ARGS__)
#define stepaf_log_info(...) stepaf_log_(STEPAF_LOG_INFO, __VA_ARGS__)
#define stepaf_log_debug(...) stepaf_log_(STEPAF_LOG_DEBUG, __VA_ARGS__)
#define stepaf_log_trace(...) stepaf_log_(STEPAF_LOG_TRACE, __VA_ARGS__)

#endif
