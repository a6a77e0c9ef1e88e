/* SPDX-License-Identifier: Apache-2.0 */
/* A job over several hosts: "stepaf-run --ssh H:N,... [-tS] [-xNAME]... [-oWORD]... -- WORD...". */
#ifndef RUN_SSH_H
#define RUN_SSH_H

/* Start an ssh for each host, tell stepaf-run there by its standard input what to run, forward what
 * ranks say line by line, and wait. Where a host fails, or after a signal or S seconds, all are
 * ended. Returns the exit code of the first that has failed, 128 and the signal's number, or 0. */
int run_ssh(int argc, char **argv);

#endif
