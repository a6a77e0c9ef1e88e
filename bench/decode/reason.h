/* SPDX-License-Identifier: Apache-2.0 */
/* Why the program cannot continue: one sentence and its exit code. */
#ifndef DECODE_REASON_H
#define DECODE_REASON_H

enum {
    REASON_TEXT_MAX = 512,
    CODE_OK = 0,
    CODE_FAILED = 1,   /* a failure at run time */
    CODE_BAD_INPUT = 2 /* unusable options or files */
};

struct reason {
    int code; /* CODE_* */
    char text[REASON_TEXT_MAX];
};

/* Fill *reason_p with a sentence about the input, and return -1. */
int reason_bad_input(struct reason *reason_p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Fill *reason_p with a sentence about a failure, and return -1. */
int reason_failed(struct reason *reason_p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for lack of memory. */
int reason_no_memory(struct reason *reason_p);

#endif
