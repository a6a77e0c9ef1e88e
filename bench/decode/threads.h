/* SPDX-License-Identifier: Apache-2.0 */
/* How many threads a rank's matrix products may use, so that ranks do not fight for cores. */
#ifndef DECODE_THREADS_H
#define DECODE_THREADS_H

/* @a asked if that is not 0, else this process's share of the machine's cores: @a ranks ranks
 * are on it. */
int threads_choose(int asked, int ranks);

/* Cores of the machine. */
int threads_cores(void);

#endif
