/* SPDX-License-Identifier: Apache-2.0 */
/* What each rank is, by what ranks say of themselves, a split, and application numbers. */
#include "base/error.h"
#include "base/log.h"
#include "unit.h"
#include "wireup/roles.h"

enum { RANKS_MAX = 16 };

static struct stepaf_hello hellos[RANKS_MAX];
static struct stepaf_split split;
static char last_log[512];

static void keep_log(stepaf_log_level_t level, const char *file, int line, const char *message,
                     void *arg)
{
    (void)level, (void)file, (void)line, (void)arg;
    snprintf(last_log, sizeof last_log, "%s", message);
}

/* A job of as many ranks as @a said has letters: A or F for what a rank says of itself, '-' for
 * nothing. @a numbers: application numbers, '-' for none. */
static int job(const char *said, const char *numbers, const char *text)
{
    int n = (int)strlen(said);

    memset(hellos, 0, sizeof hellos);
    for (int r = 0; r < n; r++) {
        hellos[r].said = said[r] == 'A'   ? STEPAF_ATTENTION
                         : said[r] == 'F' ? STEPAF_FFN
                                          : STEPAF_ROLE_AUTO;
        hellos[r].app_number = numbers[r] == '-' ? -1 : numbers[r] - '0';
        hellos[r].node_id = 5;
    }
    split = (struct stepaf_split){0};
    CU_ASSERT_EQUAL_FATAL(stepaf_split_parse(text, n, &split), STEPAF_OK);
    return n;
}

static void expect(const char *said, const char *numbers, const char *text, const char *expected)
{
    int n = job(said, numbers, text);
    uint8_t roles[RANKS_MAX];
    char shown[RANKS_MAX + 1] = {0};

    for (int own = 0; own < n; own++) {
        CU_ASSERT_EQUAL(stepaf_roles_decide(hellos, n, own, &split, roles), STEPAF_OK);
        for (int r = 0; r < n; r++)
            shown[r] = roles[r] == STEPAF_FFN ? 'F' : 'A';
        UNIT_STRING(shown, expected);
    }
    stepaf_split_free(&split);
}

static void refuse(const char *said, const char *numbers, const char *text, const char *reason)
{
    int n = job(said, numbers, text);
    uint8_t roles[RANKS_MAX];

    for (int own = 0; own < n; own++) {
        CU_ASSERT_EQUAL(stepaf_roles_decide(hellos, n, own, &split, roles), STEPAF_ERR_SPLIT);
        UNIT_CONTAINS(stepaf_last_error()->text, reason);
    }
    stepaf_split_free(&split);
}

static void numbers_decide_last(void)
{
    expect("----", "0011", "", "AAFF");
    expect("----", "1010", "", "FAFA");
    expect("A--F", "0011", "", "AAFF");
    expect("F--A", "0011", "", "FAFA");
    expect("--", "01", "attn=1,ffn=1", "AF");
    expect("--", "10", "attn=1,ffn=1", "AF");
    expect("AF", "--", "", "AF");
    expect("AF", "00", "", "AF");
    refuse("----", "0012", "", "no role for rank 3: its application number is 2");
    refuse("---", "01-", "", "no role for rank 2: its application number is -1");
}

static void equal_numbers_say_nothing(void)
{
    refuse("---", "000", "", "all ranks have application number 0, as under srun");
    refuse("---", "000", "", "STEPAF_SPLIT=attn=2,ffn=1");
    refuse("---", "111", "", "all ranks have application number 1");
    refuse("AF-", "000", "", "no role for rank 2");
    refuse("---", "---", "", "no role for rank 0: set a split (such as STEPAF_SPLIT=attn=2,ffn=1)");
    refuse("A--", "---", "", "no role for rank 1");
}

static void what_a_rank_says_wins(void)
{
    expect("F--A", "----", "attn=2,ffn=2", "FAFA");
    expect("-A-F", "0000", "attn=2,ffn=2", "AAFF");
    expect("FFFA", "----", "attn=2,ffn=2", "FFFA"); /* all say it: nothing is left to split */
    expect("FA", "----", "attn=7,ffn=9", "FA");
}

static void a_job_needs_both(void)
{
    refuse("AAA", "---", "", "all 3 ranks have the role attention");
    refuse("FF", "01", "attn=1,ffn=1", "all 2 ranks have the role FFN");
    refuse("F-", "01", "", "0 attention and 2 FFN ranks: a job requires both");
}

static void counts_must_not_contradict(void)
{
    refuse("F---", "----", "attn=3,ffn=1",
           "makes 3 attention and 1 FFN ranks, but with the ranks' own roles (STEPAF_ROLE) there "
           "are 2 and 2");
    refuse("---A", "0011", "attn=2,ffn=2", "there are 3 and 1");
    refuse("-F", "--", "attn=7,ffn=9", "7 + 9 ranks are not the job's 2");
}

static void overriding_is_logged(void)
{
    uint8_t roles[RANKS_MAX];
    int n = job("F--A", "0011", "attn=2,ffn=2");

    stepaf_log_configure(STEPAF_LOG_INFO, "");
    stepaf_log_set_callback(keep_log, NULL);
    CU_ASSERT_EQUAL(stepaf_roles_decide(hellos, n, 0, &split, roles), STEPAF_OK);
    UNIT_CONTAINS(last_log, "own role, FFN, overrides the split, by which it would be attention");
    last_log[0] = '\0';
    CU_ASSERT_EQUAL(stepaf_roles_decide(hellos, n, 1, &split, roles), STEPAF_OK);
    UNIT_STRING(last_log, "");
    n = job("----", "1100", "attn=2,ffn=2");
    CU_ASSERT_EQUAL(stepaf_roles_decide(hellos, n, 0, &split, roles), STEPAF_OK);
    UNIT_CONTAINS(last_log, "the split makes this rank attention; its application number");
    n = job("F--A", "0011", "");
    CU_ASSERT_EQUAL(stepaf_roles_decide(hellos, n, 3, &split, roles), STEPAF_OK);
    UNIT_CONTAINS(last_log, "own role, attention, overrides the application number");
    n = job("FA", "01", "attn=1,ffn=1");
    CU_ASSERT_EQUAL(stepaf_roles_decide(hellos, n, 0, &split, roles), STEPAF_OK);
    UNIT_CONTAINS(last_log, "overrides the application number");

    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE, .role = STEPAF_FFN};
    struct stepaf_env env = {.role = STEPAF_ENV_ROLE_attention};
    CU_ASSERT_EQUAL(stepaf_role_said(&params, &env), STEPAF_FFN);
    UNIT_CONTAINS(last_log, "parameters make this rank FFN; STEPAF_ROLE would make it attention");
    stepaf_log_set_callback(NULL, NULL);
}

static void sources_of_what_is_said(void)
{
    stepaf_params_t params = {.role = STEPAF_FFN};
    struct stepaf_env env = {.role = STEPAF_ENV_ROLE_auto};

    CU_ASSERT_EQUAL(stepaf_role_said(&params, &env), STEPAF_ROLE_AUTO);
    env.role = STEPAF_ENV_ROLE_attention;
    CU_ASSERT_EQUAL(stepaf_role_said(&params, &env), STEPAF_ATTENTION);
    params.field_mask = STEPAF_PARAM_ROLE;
    CU_ASSERT_EQUAL(stepaf_role_said(&params, &env), STEPAF_FFN);
    params.role = STEPAF_ROLE_AUTO;
    CU_ASSERT_EQUAL(stepaf_role_said(&params, &env), STEPAF_ATTENTION);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"numbers decide last", numbers_decide_last},
        {"equal numbers say nothing", equal_numbers_say_nothing},
        {"what a rank says wins", what_a_rank_says_wins},
        {"a job requires both", a_job_needs_both},
        {"counts must not contradict", counts_must_not_contradict},
        {"overriding is logged", overriding_is_logged},
        {"sources of what is said", sources_of_what_is_said},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
