/* SPDX-License-Identifier: Apache-2.0 */
/* The library's own threads. They take none of the process's signals, which are for the program's
 * threads. A fault in them goes to the program's handler, as in any other thread. */
#ifndef STEPAF_BASE_THREAD_H
#define STEPAF_BASE_THREAD_H

#include <pthread.h>

/* Start a thread that must be joined. Returns 0, or an errno with no thread started. */
int stepaf_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
