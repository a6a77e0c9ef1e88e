/* SPDX-License-Identifier: Apache-2.0 */
/* Why a system call has failed, in words: where it is a limit of this process, which, and how to
 * raise it. */
#ifndef STEPAF_BASE_WHY_H
#define STEPAF_BASE_WHY_H

/* As strerror; valid until the thread's next call. */
const char *stepaf_why(int error);

#endif
