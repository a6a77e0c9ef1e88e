/* SPDX-License-Identifier: Apache-2.0 */
/* Why something failed: one sentence, kept until main prints it. */
#ifndef RUN_FAIL_H
#define RUN_FAIL_H

#define RUN_FAIL_MAX 640

/* Exit codes of stepaf-run itself; what it starts has its own. The last two are a shell's. */
enum { RUN_EXIT_OK = 0, RUN_EXIT_USAGE = 2, RUN_EXIT_NOT_RUN = 126, RUN_EXIT_NOT_FOUND = 127 };

/* Remember a sentence. */
void run_fail_set(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, and -1, for the caller to return in turn. */
#define run_fail(...) (run_fail_set(__VA_ARGS__), -1)

/* The sentence that was remembered last; "" if none was. */
const char *run_fail_text(void);

#endif
