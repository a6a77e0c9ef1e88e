/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot_auto.h"

#include "config.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "boot/control/place.h"

/* A library with a bootstrap, and its way in. */
struct library {
    const char *file; /* by the version that belongs to this one */
    const char *entry;
    const char *package; /* what to ask configure for */
    const char *direct;  /* what programs call that are linked against archives */
};

static const struct library libraries[] = {
    [STEPAF_ENV_BOOT_mpi] = {STEPAF_MPI_SONAME, "stepaf_init_mpi_world", "MPI", "stepaf_init_mpi"},
    [STEPAF_ENV_BOOT_pmix] = {STEPAF_PMIX_SONAME, "stepaf_init_pmix", "PMIx", "stepaf_init_pmix"},
};

/* Whether the object is an MPI library: all of them are called libmpi-something. */
static int is_mpi(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;

    (void)bytes;
    (void)arg;
    return strncmp(name, "libmpi", strlen("libmpi")) == 0;
}

/* Launchers within each other's jobs leave their variables to each other. torchrun that has started
 * this process itself is the innermost; what sets no more than torchrun's variables may be a script
 * around a launcher of MPI programs. */
static int is_torch(int has_launcher)
{
    return stepaf_place_is_torch() && (getenv("TORCHELASTIC_RUN_ID") || !has_launcher);
}

int stepaf_boot_choose(const struct stepaf_env *env)
{
    int has_pmix = getenv("PMIX_NAMESPACE") && getenv("PMIX_RANK");
    int has_mpi = getenv("PMI_RANK") || getenv("OMPI_COMM_WORLD_SIZE");

    if (env->boot != STEPAF_ENV_BOOT_auto)
        return env->boot;
    /* Said on purpose, by whoever has started the process. */
    if (env->local_size > 0)
        return STEPAF_ENV_BOOT_local;
    if (*env->meet || is_torch(has_pmix || has_mpi))
        return STEPAF_ENV_BOOT_tcp;
    /* A program that has MPI has it initialized by now, or is told to; PMIx may be there as
     * well. */
    if (dl_iterate_phdr(is_mpi, NULL))
        return STEPAF_ENV_BOOT_mpi;
    if (has_pmix)
        return STEPAF_ENV_BOOT_pmix;
    if (has_mpi)
        return STEPAF_ENV_BOOT_mpi;
    return -1;
}

/* Open what stands beside this library, or else what the loader finds. It stays open: contexts and
 * the launcher's own threads go on using it. */
static void *open_library(const struct library *library)
{
    char path[PATH_MAX];
    void *opened = NULL;
    Dl_info own;

    if (dladdr((const void *)(uintptr_t)&stepaf_boot_choose, &own) && own.dli_fname) {
        const char *slash = strrchr(own.dli_fname, '/');
        int length = slash ? (int)(slash - own.dli_fname) : 0;
        int n = snprintf(path, sizeof(path), "%.*s/%s", length, own.dli_fname, library->file);
        if (slash && n > 0 && (size_t)n < sizeof(path))
            opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return opened ? opened : dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
}

/* Whether the stepaf_init that is found in @a scope is of this object. */
static bool is_own_init(void *scope)
{
    const void *found = dlsym(scope, "stepaf_init");
    Dl_info own, other;

    return found && dladdr((const void *)(uintptr_t)&stepaf_boot_choose, &own) &&
           dladdr(found, &other) && own.dli_fbase == other.dli_fbase;
}

stepaf_status_t stepaf_boot_load(int choice, stepaf_boot_init_t *init_p)
{
    const struct library *library = &libraries[choice];
    void *opened = open_library(library);

    if (!opened)
        return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                "cannot load the bootstrap for %s: %.300s", library->package,
                                dlerror());
    /* What the program exports comes before what the opened library depends on. */
    if (!is_own_init(RTLD_DEFAULT) && !is_own_init(opened))
        return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                "%s has loaded a second libstepaf: a program that links libstepaf "
                                "statically must call %s instead of stepaf_init(NULL, ...)",
                                library->file, library->direct);
    union { /* ISO C has no conversion of the one to the other; POSIX says that they are alike */
        void *symbol;
        stepaf_boot_init_t init;
    } entry = {.symbol = dlsym(opened, library->entry)};
    if (!entry.symbol)
        return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                "%s has no function %s: the library is of another version",
                                library->file, library->entry);
    *init_p = entry.init;
    return STEPAF_OK;
}
