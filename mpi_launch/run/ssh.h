/* SPDX-License-Identifier: Apache-2.0 */
/* A job over several hosts: "stepaf-run --ssh H:N,... [-tS] [-xNAME]... [-oWORD]... -- WORD...". */
#ifndef RUN_SSH_H
#define RUN_SSH_H

/* Start an ssh for each host, send the job to stepaf-run there on its standard input, forward
 * the output of ranks line by line, and wait. If a host fails, or after a signal or S seconds,
 * all are ended. Returns the exit code of the first host that failed, 128 and the signal's
 * number, or 0. */
int run_ssh(int argc, char **argv);

#endif
