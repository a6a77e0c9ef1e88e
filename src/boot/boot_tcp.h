/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap for ranks that no launcher has started, on any number of hosts: the ranks meet at
 * an address. */
#ifndef STEPAF_BOOT_BOOT_TCP_H
#define STEPAF_BOOT_BOOT_TCP_H

#include <stepaf/boot.h>

#include "settings/settings.h"

/* Fill *boot_p according to the settings and the environment (control/place.h). Does not block: the
 * ranks meet in their first exchange. Returns STEPAF_ERR_SETTING if these do not give a place in a
 * job, STEPAF_ERR_BOOT if the system gives no file descriptor, or STEPAF_ERR_NO_MEMORY; *boot_p is
 * then unchanged. */
stepaf_status_t stepaf_boot_tcp(const struct stepaf_env *env, stepaf_boot_t *boot_p);

#endif
