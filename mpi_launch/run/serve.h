/* SPDX-License-Identifier: Apache-2.0 */
/* On a host, at the other end of ssh: "stepaf-run --serve". */
#ifndef RUN_SERVE_H
#define RUN_SERVE_H

/* Read the host's part of the job from standard input, start its ranks, and wait for them. Standard
 * input stays open as long as the job is to go on: at its end, or after a signal, all ranks are
 * ended, as they are where one of them has failed. Returns that one's exit code, 128 and the
 * signal's number, or 0. */
int run_serve(void);

#endif
