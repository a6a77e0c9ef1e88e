/* SPDX-License-Identifier: Apache-2.0 */
/* On a rank: "stepaf-run --exec SPEC PROGRAM [ARGUMENT...]". */
#ifndef RUN_EXEC_H
#define RUN_EXEC_H

/* Bind this process, set the program's environment, and become the program. Returns an exit code
 * only if that was not possible. @a argv is NULL-terminated, SPEC first. */
int run_exec(int argc, char **argv);

#endif
