/* SPDX-License-Identifier: Apache-2.0 */
/* The remote end of ssh on a host: "stepaf-run --serve". */
#ifndef RUN_SERVE_H
#define RUN_SERVE_H

/* Read the host's part of the job from standard input, start its ranks, and wait for them.
 * Standard input stays open as long as the job continues: at its end, after a longer silence than
 * its beats allow (job.h), after a signal, or when a rank has failed, all ranks are ended. Returns
 * the exit code of the failed rank, RUN_CODE_SILENT, 128 and the signal's number, or 0. */
int run_serve(void);

#endif
