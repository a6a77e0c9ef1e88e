/* SPDX-License-Identifier: Apache-2.0 */
/* Explain why a system call has failed: if it is a limit of this process, which limit, and how to
 * raise it. */
#ifndef STEPAF_BASE_WHY_H
#define STEPAF_BASE_WHY_H

/* Like strerror; valid until the thread's next call. */
const char *stepaf_why(int error);

#endif
