/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the host names of the command line exist. */
#ifndef RUN_RESOLVE_H
#define RUN_RESOLVE_H

#include "launcher.h"
#include "options.h"

/* Look up every host's name before a launcher does so during the start. Names are checked only
 * where the program connects to them itself: not under a resource manager, nor with a remote
 * shell of the user's own, which may know names that nothing else knows, nor where ssh has
 * another address for the name. Returns -1 with a sentence that names the host. May block as
 * long as name service does. */
int run_resolve_hosts(const struct run_options *options, const struct run_launcher *launcher,
                      char *const *environment);

#endif
