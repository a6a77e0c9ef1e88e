/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that return and cannot connect to each other. */
#ifndef STEPAF_TEST_HALTS_H
#define STEPAF_TEST_HALTS_H

/* From now on this process listens at ports of a range, and its own connections to that range are
 * neither accepted nor refused. Call before there is a context. */
void halts_be_apart(void);

#endif
