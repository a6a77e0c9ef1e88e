/* SPDX-License-Identifier: Apache-2.0 */
/* --report: an HTML file of the run's own JSON, made by stepaf-report. */
#ifndef PERF_HTML_H
#define PERF_HTML_H

/* Find out, before anything is measured, whether stepaf-report and what it needs are there, and
 * whether @a report_file can be written. -1 with a sentence that says what to install, or why not. */
int perf_html_ask(const char *report_file);

/* Have it read @a json_file and write @a report_file. What goes wrong there it says itself; -1 with
 * a sentence. */
int perf_html_make(const char *json_file, const char *report_file);

#endif
