/* SPDX-License-Identifier: Apache-2.0 */
/* Letting peers at this process's pages, where Yama would not: what is asked of the kernel, and
 * when. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "transport/shm/attach.h"
#include "unit.h"

int __wrap_prctl(int option, unsigned long value, unsigned long c, unsigned long d,
                 unsigned long e);
int __real_prctl(int option, unsigned long value, unsigned long c, unsigned long d,
                 unsigned long e);

static unsigned n_asked;
static unsigned long allowed; /* what was asked for last */
static bool refuses;

/* As a kernel with Yama. */
int __wrap_prctl(int option, unsigned long value, unsigned long c, unsigned long d, unsigned long e)
{
    if (option != PR_SET_PTRACER)
        return __real_prctl(option, value, c, d, e);
    n_asked++;
    if (refuses)
        return -1;
    allowed = value;
    return 0;
}

static int scope_of(const char *text)
{
    char path[] = "/tmp/stepaf_scope_XXXXXX";
    int fd = mkstemp(path);

    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int scope = stepaf_shm_ptrace_scope(path);
    (void)unlink(path);
    return scope;
}

static void the_scope_is_read(void)
{
    CU_ASSERT_EQUAL(scope_of("0\n"), 0);
    CU_ASSERT_EQUAL(scope_of("1\n"), 1);
    CU_ASSERT_EQUAL(scope_of("3\n"), 3);
    CU_ASSERT_EQUAL(scope_of(""), 0);
    CU_ASSERT_EQUAL(scope_of("x"), 0);
    CU_ASSERT_EQUAL(stepaf_shm_ptrace_scope("/nonexistent/ptrace_scope"), 0);
}

static void only_what_helps_is_asked(void)
{
    n_asked = 0;
    CU_ASSERT_FALSE(stepaf_shm_attach_allow(0)); /* all are allowed */
    CU_ASSERT_FALSE(stepaf_shm_attach_allow(2)); /* only CAP_SYS_PTRACE is */
    CU_ASSERT_FALSE(stepaf_shm_attach_allow(3)); /* none is */
    CU_ASSERT_EQUAL(n_asked, 0);
    refuses = true;
    CU_ASSERT_FALSE(stepaf_shm_attach_allow(1));
    refuses = false;
}

static void the_last_context_takes_it_back(void)
{
    n_asked = 0;
    CU_ASSERT_TRUE(stepaf_shm_attach_allow(1));
    CU_ASSERT_EQUAL(allowed, PR_SET_PTRACER_ANY);
    CU_ASSERT_TRUE(stepaf_shm_attach_allow(1));
    CU_ASSERT_EQUAL(n_asked, 1);
    stepaf_shm_attach_disallow();
    CU_ASSERT_EQUAL(allowed, PR_SET_PTRACER_ANY);
    stepaf_shm_attach_disallow();
    CU_ASSERT_EQUAL(allowed, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the scope is read", the_scope_is_read},
        {"only what helps is asked", only_what_helps_is_asked},
        {"the last context takes it back", the_last_context_takes_it_back},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
