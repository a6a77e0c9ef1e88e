/* SPDX-License-Identifier: Apache-2.0 */
/* --report: an HTML file made by stepaf-report from the run's own JSON. */
#ifndef PERF_HTML_H
#define PERF_HTML_H

/* Check, before anything is measured, that stepaf-report and its requirements are installed, and
 * that @a report_file can be written. -1 with a sentence that says what to install, or why not. */
int perf_html_ask(const char *report_file);

/* Run stepaf-report on @a json_file to write @a report_file. It prints its own errors; -1 with a
 * sentence. */
int perf_html_make(const char *json_file, const char *report_file);

#endif
