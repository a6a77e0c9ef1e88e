/* SPDX-License-Identifier: Apache-2.0 */
/* Looking up UCX, without what it does to a process as soon as it is loaded. */
#include "transport/ucx/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fd.h"

enum { LAST_SIGNAL = 31 };

const struct stepaf_ucx_library *stepaf_ucx_library_fake;

static struct stepaf_ucx_library ucx_real;
static bool ucx_usable;
static char ucx_reason[STEPAF_REASON_MAX];

static const struct {
    const char *name;
    size_t at;
} ucx_entries[] = {
#define CALL(name) {"ucp_" #name, offsetof(struct stepaf_ucx_library, name)},
    STEPAF_UCX_CALLS(CALL)
#undef CALL
        {"ucs_status_string", offsetof(struct stepaf_ucx_library, status_string)},
};

/* It prints on standard output what it thinks of the environment and of peers that end, unless
 * UCX_LOG_LEVEL says otherwise. What there is to say of peers is in the status of operations. */
static void make_quiet(void *library)
{
    ucs_status_t (*set)(const char *name, const char *value);
    void *function = dlsym(library, "ucs_global_opts_set_value");

    if (getenv("UCX_LOG_LEVEL") || !function)
        return;
    memcpy(&set, &function, sizeof(set));
    (void)set("LOG_LEVEL", "fatal");
}

/* Its constructors take over signals of errors, and SIGHUP: they are the program's. */
static void *load_without_handlers(void)
{
    struct sigaction before[LAST_SIGNAL + 1];
    bool known[LAST_SIGNAL + 1] = {false};
    void *library;

    for (int i = 1; i <= LAST_SIGNAL; i++)
        known[i] = !sigaction(i, NULL, &before[i]);
    stepaf_fd_begin();
    library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL); /* for good */
    (void)stepaf_fd_end(-1);
    for (int i = 1; i <= LAST_SIGNAL; i++) {
        struct sigaction now;
        if (known[i] && !sigaction(i, NULL, &now) && now.sa_sigaction != before[i].sa_sigaction)
            (void)sigaction(i, &before[i], NULL);
    }
    return library;
}

static void ucx_load(void)
{
    unsigned major, minor, release;
    void *earlier =
        dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD); /* of an MPI, say: it is set up by that */
    void *library = load_without_handlers();

    if (!library) {
        snprintf(ucx_reason, sizeof(ucx_reason), "no UCX: %.150s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof(ucx_entries) / sizeof(ucx_entries[0]); i++) {
        void *function = dlsym(library, ucx_entries[i].name);
        if (!function) {
            snprintf(ucx_reason, sizeof(ucx_reason), "this UCX has no %s", ucx_entries[i].name);
            return;
        }
        memcpy((char *)&ucx_real + ucx_entries[i].at, &function, sizeof(function));
    }
    ucx_real.get_version(&major, &minor, &release);
    if (UCP_VERSION(major, minor) < UCP_VERSION(1, 13)) {
        snprintf(ucx_reason, sizeof(ucx_reason), "UCX is %u.%u.%u; 1.13 or newer is needed", major,
                 minor, release);
        return;
    }
    if (!earlier)
        make_quiet(library);
    ucx_usable = true;
}

const struct stepaf_ucx_library *stepaf_ucx_library(char *reason)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (stepaf_ucx_library_fake)
        return stepaf_ucx_library_fake;
    (void)pthread_once(&once, ucx_load);
    if (!ucx_usable)
        snprintf(reason, STEPAF_REASON_MAX, "%s", ucx_reason);
    return ucx_usable ? &ucx_real : NULL;
}
