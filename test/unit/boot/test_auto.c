/* SPDX-License-Identifier: Apache-2.0 */
/* Which bootstrap a process is given by what it finds itself in. */
#include "config.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "base/error.h"
#include "boot/boot_auto.h"
#include "unit.h"

static const char *const traces[] = {"PMIX_NAMESPACE", "PMIX_RANK",   "PMI_RANK",
                                     "RANK",           "WORLD_SIZE",  "OMPI_COMM_WORLD_SIZE",
                                     "MASTER_ADDR",    "MASTER_PORT", "TORCHELASTIC_RUN_ID"};
static char nothing[] = "";

static void forget_launchers(void)
{
    for (size_t i = 0; i < sizeof traces / sizeof traces[0]; i++)
        unsetenv(traces[i]);
}

static void the_environment_decides(void)
{
    static const struct stepaf_env env = {.boot = STEPAF_ENV_BOOT_auto, .meet = nothing};

    forget_launchers();
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), -1);
    setenv("PMIX_RANK", "0", 1);
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), -1); /* half a launcher is none */
    setenv("PMIX_NAMESPACE", "job", 1);
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_pmix);
    forget_launchers();
    setenv("PMI_RANK", "0", 1);
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_mpi);
    forget_launchers();
}

/* torchrun within a launcher's job is the innermost; a script that sets as much for MPI's ranks is
 * not. */
static void torchrun(void)
{
    struct stepaf_env env = {.boot = STEPAF_ENV_BOOT_auto, .meet = nothing};

    forget_launchers();
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "localhost", 1);
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), -1);
    setenv("MASTER_PORT", "29500", 1);
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_tcp);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_mpi);
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_tcp);
    env.local_size = 2;
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_local);
    forget_launchers();
    env = (struct stepaf_env){.boot = STEPAF_ENV_BOOT_auto, .meet = (char *)(uintptr_t) "h:1"};
    setenv("PMI_RANK", "0", 1);
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_tcp);
    forget_launchers();
}

static void a_setting_is_stronger(void)
{
    struct stepaf_env env = {.boot = STEPAF_ENV_BOOT_mpi, .meet = nothing};

    forget_launchers();
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_mpi);
    env.boot = STEPAF_ENV_BOOT_pmix;
    setenv("PMI_RANK", "0", 1);
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_pmix);
    env.local_size = 2; /* of use where nothing is said */
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_pmix);
    env.boot = STEPAF_ENV_BOOT_auto;
    CU_ASSERT_EQUAL(stepaf_boot_choose(&env), STEPAF_ENV_BOOT_local);
    forget_launchers();
}

static void without_a_launcher_it_says_how_to_start(void)
{
    stepaf_context_h ctx = NULL;

    forget_launchers();
    unsetenv("STEPAF_BOOT");
    CU_ASSERT_EQUAL(stepaf_init(NULL, NULL, &ctx), STEPAF_ERR_BOOT);
    CU_ASSERT_PTR_NULL(ctx);
    UNIT_CONTAINS(stepaf_last_error()->text, "no launcher has started this process");
    UNIT_CONTAINS(stepaf_last_error()->text, "srun --mpi=pmix");
    UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_LOCAL_RANK");
    setenv("STEPAF_BOOT", "local", 1);
    CU_ASSERT_EQUAL(stepaf_init(NULL, NULL, &ctx), STEPAF_ERR_SETTING);
    CU_ASSERT_PTR_NULL(ctx);
    UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_LOCAL_SIZE is not set");
    setenv("STEPAF_BOOT", "tcp", 1);
    CU_ASSERT_EQUAL(stepaf_init(NULL, NULL, &ctx), STEPAF_ERR_SETTING);
    CU_ASSERT_PTR_NULL(ctx);
    UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_MEET is not set");
    unsetenv("STEPAF_BOOT");
}

/* This program is linked against an archive of the library, and a launcher's shared library brings
 * libstepaf with it. */
static void a_second_libstepaf_is_refused(void)
{
    static const char *const files[] = {".libs/" STEPAF_MPI_SONAME, ".libs/" STEPAF_PMIX_SONAME};
    static const int choices[] = {STEPAF_ENV_BOOT_mpi, STEPAF_ENV_BOOT_pmix};
    static const char *const calls[] = {"stepaf_init_mpi ", "stepaf_init_pmix "};

    for (int i = 0; i < 2; i++) {
        stepaf_boot_init_t init = NULL;
        if (!dlopen(files[i], RTLD_NOW | RTLD_LOCAL)) /* then it is found by its name */
            continue;
        CU_ASSERT_EQUAL(stepaf_boot_load(choices[i], &init), STEPAF_ERR_BOOT);
        CU_ASSERT_PTR_NULL(init);
        UNIT_CONTAINS(stepaf_last_error()->text, "has loaded a second libstepaf");
        UNIT_CONTAINS(stepaf_last_error()->text, calls[i]);
    }
}

/* Of this library's own only, and nothing is changed where there is none. */
static void a_bootstrap_to_keep(void)
{
    stepaf_boot_t boot = {.size = 7};

    forget_launchers();
    CU_ASSERT_EQUAL(stepaf_boot_open(NULL), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_boot_open(&boot), STEPAF_ERR_BOOT);
    UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_MEET");
    setenv("STEPAF_BOOT", "pmix", 1);
    CU_ASSERT_EQUAL(stepaf_boot_open(&boot), STEPAF_ERR_BOOT);
    setenv("STEPAF_BOOT", "tcp", 1);
    CU_ASSERT_EQUAL(stepaf_boot_open(&boot), STEPAF_ERR_SETTING);
    CU_ASSERT_EQUAL(boot.size, 7);
    unsetenv("STEPAF_BOOT");
    setenv("STEPAF_MEET", "localhost:1", 1);
    setenv("STEPAF_SIZE", "3", 1);
    setenv("STEPAF_RANK", "2", 1);
    CU_ASSERT_EQUAL_FATAL(stepaf_boot_open(&boot), STEPAF_OK);
    CU_ASSERT_STRING_EQUAL(boot.name, "tcp");
    CU_ASSERT_EQUAL(boot.rank, 2);
    CU_ASSERT_EQUAL(boot.size, 3);
    boot.close(boot.self);
    unsetenv("STEPAF_MEET");
    unsetenv("STEPAF_SIZE");
    unsetenv("STEPAF_RANK");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the environment decides", the_environment_decides},
        {"torchrun", torchrun},
        {"a setting is stronger", a_setting_is_stronger},
        {"without a launcher it says how to start", without_a_launcher_it_says_how_to_start},
        {"a bootstrap to keep", a_bootstrap_to_keep},
        {"a second libstepaf is refused", a_second_libstepaf_is_refused},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
