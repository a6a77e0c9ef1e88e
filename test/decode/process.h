/* SPDX-License-Identifier: Apache-2.0 */
/* Running stepaf_decode from a test: its output in files, its end awaited for so long and no
 * longer, its ranks found. */
#ifndef TEST_DECODE_PROCESS_H
#define TEST_DECODE_PROCESS_H

#include <limits.h>
#include <sys/types.h>

enum { PROCESS_MAX_ARGS = 64 };

struct process {
    pid_t pid;
    char out[PATH_MAX]; /* files with what it has written */
    char err[PATH_MAX];
};

/* Make a directory that is removed, with all in it, when the test exits. */
const char *process_scratch(void);

/* Path of stepaf_decode, and of the directory of the model @a name that comes with it. */
const char *process_program(void);
const char *process_model(const char *name);

/* Start stepaf_decode with @a args, ended by NULL. */
void process_start(const char *const *args, struct process *process_p);

/* Wait for its end for at most @a seconds, then end it. Returns the exit code; 128 + n if signal
 * n has ended it; -1 if it had to be ended. */
int process_wait(struct process *process, int seconds);

/* Start and wait. */
int process_run(const char *const *args, int seconds, struct process *process_p);

/* Whether it has ended by itself, without waiting for it. */
int process_ended(const struct process *process);

/* The rank of a run with --procs that calls itself @a name ("stepaf-attn0"); waits until it is
 * there, 0 if it never is. */
pid_t process_rank(const struct process *process, const char *name);

/* All of a file as text, for free(); and how many lines that is. */
char *process_text(const char *path);
int process_lines(const char *text);

/* Seconds of the monotonic clock. */
double process_now(void);

/* Say what went wrong, with the process's output. */
void process_complain(const struct process *process, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
