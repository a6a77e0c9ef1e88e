/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of a proxied job do commit after commit: functions for ranks_expect_processes, which
 * take a struct proxy_job. */
#ifndef STEPAF_TEST_PROXY_AGAIN_H
#define STEPAF_TEST_PROXY_AGAIN_H

#include <stepaf/stepaf.h>

/* A commit in between, after an uneven number of operations, so that a host plan goes on with
 * another slot than the stream begins with. */
int proxy_commit_again(const stepaf_boot_t *boot, void *job);
/* A stream plan that ends, and its keys with it, then other keys by the same numbers: what they
 * came to on their way goes too. */
int proxy_withdraw_keys(const stepaf_boot_t *boot, void *job);

#endif
