/* SPDX-License-Identifier: Apache-2.0 */
/* Runs another program for its output. */
#ifndef RUN_PROBE_H
#define RUN_PROBE_H

#include <stddef.h>

/* Run argv[0], looked up in PATH, for at most @a timeout_ms, and keep the beginning of its
 * output on both streams. Return its exit code, 128 + signal if a signal has ended it, or -1
 * with errno: it could not be started (ENOENT: no such program), or did not finish in time and
 * was killed (ETIMEDOUT). *text_p is a string in every case. */
int run_probe(char *const argv[], int timeout_ms, char *text_p, size_t capacity);

#endif
