/* SPDX-License-Identifier: Apache-2.0 */
/* The common main part of every CUnit program. */
#ifndef STEPAF_TEST_UNIT_H
#define STEPAF_TEST_UNIT_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

/* Run @a tests (ended by CU_TEST_INFO_NULL) as one suite, named as the program; return main's
 * exit code. CUnit's own result does not say whether an assertion failed. */
static inline int unit_run(CU_TestInfo *tests)
{
    const char *suite = program_invocation_short_name;
    CU_SuiteInfo suites[] = {{.pName = suite, .pTests = tests}, CU_SUITE_INFO_NULL};
    if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS) {
        fprintf(stderr, "%s: %s\n", suite, CU_get_error_msg());
        return 99;
    }
    CU_basic_set_mode(CU_BRM_NORMAL);
    CU_basic_run_tests();
    int failed = CU_get_number_of_failures() != 0 || CU_get_number_of_tests_run() == 0;
    CU_cleanup_registry();
    return failed;
}

/* Let hwloc load its XML plugin, which test/sanitize.sh disables for all tests. */
static inline void unit_with_xml(void)
{
    const char *rest = getenv("TEST_HWLOC_BLACKLIST");
    setenv("HWLOC_PLUGINS_BLACKLIST", rest ? rest : "", 1);
}

/* CUnit's own comparison does not show the strings. */
#define UNIT_STRING(actual_, expected_)                                                            \
    do {                                                                                           \
        const char *unit_actual = (actual_);                                                       \
        const char *unit_expected = (expected_);                                                   \
        CU_ASSERT_STRING_EQUAL(unit_actual, unit_expected);                                        \
        if (strcmp(unit_actual, unit_expected) != 0)                                               \
            fprintf(stderr, "\n    is        %s\n    should be %s\n", unit_actual, unit_expected); \
    } while (0)

/* Assert that @a text_ contains @a part_. */
#define UNIT_CONTAINS(text_, part_)                                                \
    do {                                                                           \
        const char *unit_text = (text_);                                           \
        const char *unit_part = (part_);                                           \
        CU_ASSERT_PTR_NOT_NULL(strstr(unit_text, unit_part));                      \
        if (!strstr(unit_text, unit_part))                                         \
            fprintf(stderr, "\n    \"%s\" is not in: %s\n", unit_part, unit_text); \
    } while (0)

#endif
