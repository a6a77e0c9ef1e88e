/* SPDX-License-Identifier: Apache-2.0 */
#include "base/handlers.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>

#include "base/fd.h"

enum { LAST_SIGNAL = 31 };

/* UCX's constructors install handlers for error signals and SIGHUP. Those of PSM, which libfabric
 * may load, also do so for SIGINT and SIGTERM. */
void *stepaf_load_without_handlers(const char *name)
{
    struct sigaction before[LAST_SIGNAL + 1];
    bool known[LAST_SIGNAL + 1] = {false};
    void *library;

    for (int i = 1; i <= LAST_SIGNAL; i++)
        known[i] = !sigaction(i, NULL, &before[i]);
    stepaf_fd_begin();
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    (void)stepaf_fd_end(-1);
    for (int i = 1; i <= LAST_SIGNAL; i++) {
        struct sigaction now;
        if (known[i] && !sigaction(i, NULL, &now) && now.sa_sigaction != before[i].sa_sigaction)
            (void)sigaction(i, &before[i], NULL);
    }
    return library;
}
