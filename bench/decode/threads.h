/* SPDX-License-Identifier: Apache-2.0 */
/* The number of threads for a rank's matrix products, so that ranks do not compete for cores. */
#ifndef DECODE_THREADS_H
#define DECODE_THREADS_H

/* Return @a asked if that is not 0, else this process's share of the machine's cores: @a ranks
 * ranks run there. */
int threads_choose(int asked, int ranks);

/* Cores of the machine. */
int threads_cores(void);

#endif
