/* SPDX-License-Identifier: Apache-2.0 */
#include "base/handlers.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>

#include "base/fd.h"

enum { LAST_SIGNAL = 31 };

/* UCX's constructors take over signals of errors, and SIGHUP; those of PSM, which libfabric may bring
 * with it, SIGINT and SIGTERM as well. */
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
