/* SPDX-License-Identifier: Apache-2.0 */
/* Whether there are hosts of the names that the command line gives. */
#ifndef RUN_RESOLVE_H
#define RUN_RESOLVE_H

#include "launcher.h"
#include "options.h"

/* Look up every host's name, before a launcher does so in the midst of a start. Only where all that
 * can follow is a connection to that name: not under a resource manager, nor with a remote shell of
 * the user's own, which may know names that nobody else does; and what ssh has another address for
 * is its business. -1 with a sentence that names the host. May block as long as name service
 * does. */
int run_resolve_hosts(const struct run_options *options, const struct run_launcher *launcher,
                      char *const *environment);

#endif
