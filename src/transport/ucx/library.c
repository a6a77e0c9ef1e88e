/* SPDX-License-Identifier: Apache-2.0 */
/* Load UCX, and undo what it does to the process when it is loaded. */
#include "transport/ucx/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/handlers.h"

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

/* UCX prints warnings about the environment, and errors of peers that end, on standard output,
 * unless UCX_LOG_LEVEL is set. The statuses of operations report the errors of peers anyway. */
static void make_quiet(void *library)
{
    ucs_status_t (*set)(const char *name, const char *value);
    void *function = dlsym(library, "ucs_global_opts_set_value");

    if (getenv("UCX_LOG_LEVEL") || !function)
        return;
    memcpy(&set, &function, sizeof(set));
    (void)set("LOG_LEVEL", "fatal");
}

static void ucx_load(void)
{
    unsigned major, minor, release;
    void *earlier =
        dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD); /* loaded and set up by, say, an MPI */
    void *library = stepaf_load_without_handlers("libucp.so.0");

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
