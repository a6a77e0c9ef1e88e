/* SPDX-License-Identifier: Apache-2.0 */
/* A signal that ends --forever after the row that is being measured. */
#ifndef PERF_STOP_H
#define PERF_STOP_H

/* From here on, and in children, SIGINT and SIGTERM are noted only. */
void perf_stop_on_signals(void);

int perf_stop_asked(void);

#endif
