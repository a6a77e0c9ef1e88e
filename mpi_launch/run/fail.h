/* SPDX-License-Identifier: Apache-2.0 */
/* The reason of a failure: one sentence, kept until main prints it. */
#ifndef RUN_FAIL_H
#define RUN_FAIL_H

#define RUN_FAIL_MAX 640

/* Exit codes of stepaf-run itself; programs that it starts have their own. The last two are a
 * shell's. */
enum { RUN_EXIT_OK = 0, RUN_EXIT_USAGE = 2, RUN_EXIT_NOT_RUN = 126, RUN_EXIT_NOT_FOUND = 127 };

/* Record a sentence. */
void run_fail_set(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Record a sentence and evaluate to -1, for the caller to return. */
#define run_fail(...) (run_fail_set(__VA_ARGS__), -1)

/* Return the last recorded sentence; "" if there is none. */
const char *run_fail_text(void);

/* Print that a program could not be run, for the reason in errno. Return the exit code. */
int run_fail_program(const char *name);

#endif
