/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: every row of the table, good and bad values, and what must agree. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stepaf/log.h>

#include "base/error.h"
#include "settings/settings.h"
#include "unit.h"

/* An environment of one variable. */
struct variable {
    const char *name;
    const char *value;
};

static const char *get_one(const char *name, void *arg)
{
    const struct variable *variable = arg;
    return variable->name && strcmp(name, variable->name) == 0 ? variable->value : NULL;
}

static stepaf_status_t load_one(struct stepaf_env *env_p, const char *name, const char *value)
{
    struct variable variable = {name, value};
    return stepaf_env_load_from(env_p, get_one, &variable);
}

/* The value is refused by a sentence that names all there is to know, and nothing is touched. */
static void expect_refusal(int index, const char *value)
{
    struct stepaf_env_info info;
    struct stepaf_env env;
    struct stepaf_env before;
    stepaf_env_describe(index, &info);
    memset(&env, 0x5a, sizeof env);
    before = env;

    stepaf_status_t status = load_one(&env, info.name, value);
    CU_ASSERT_EQUAL(status, STEPAF_ERR_SETTING);
    if (status != STEPAF_ERR_SETTING) {
        fprintf(stderr, "\n    %s=%s was taken\n", info.name, value);
        stepaf_env_free(&env);
        return;
    }
    CU_ASSERT_EQUAL(memcmp(&env, &before, sizeof env), 0);
    CU_ASSERT_EQUAL(stepaf_last_error()->status, STEPAF_ERR_SETTING);
    UNIT_CONTAINS(stepaf_last_error()->text, info.name);
    UNIT_CONTAINS(stepaf_last_error()->text, info.syntax);
    if (strlen(value) < 40)
        UNIT_CONTAINS(stepaf_last_error()->text, value);
}

/* The value is taken, and shows in this setting and no other. */
static void expect_value(int index, const char *value)
{
    struct stepaf_env_info info;
    struct stepaf_env env;
    stepaf_env_describe(index, &info);
    stepaf_status_t status = load_one(&env, info.name, value);
    CU_ASSERT_EQUAL(status, STEPAF_OK);
    if (status != STEPAF_OK) {
        fprintf(stderr, "\n    %s\n", stepaf_last_error()->text);
        return;
    }
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        char text[256];
        stepaf_env_describe(i, &info);
        stepaf_env_format(&env, i, text, sizeof text);
        UNIT_STRING(text, i == index ? value : info.fallback);
        CU_ASSERT_EQUAL(env.from_environment[i], i == index);
    }
    stepaf_env_free(&env);
}

static void defaults_are_the_tables(void)
{
    struct stepaf_env env;
    CU_ASSERT_EQUAL_FATAL(load_one(&env, NULL, NULL), STEPAF_OK);
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        char text[256];
        stepaf_env_describe(i, &info);
        stepaf_env_format(&env, i, text, sizeof text);
        UNIT_STRING(text, info.fallback);
        CU_ASSERT_EQUAL(env.from_environment[i], 0);
        CU_ASSERT_EQUAL(strncmp(info.name, "STEPAF_", 7), 0);
        CU_ASSERT(strlen(info.help) > 0);
        CU_ASSERT(strlen(info.syntax) > 0);
    }
    CU_ASSERT_EQUAL(env.role, STEPAF_ENV_ROLE_auto);
    CU_ASSERT_EQUAL(env.timeout_us, 10000000);
    CU_ASSERT_EQUAL(env.log_level, STEPAF_LOG_WARN);
    CU_ASSERT_EQUAL(env.trace, STEPAF_ENV_TRACE_on);
    CU_ASSERT_EQUAL(env.shm_cma, STEPAF_ENV_SHM_CMA_auto);
    CU_ASSERT_EQUAL(env.backoff, STEPAF_ENV_BACKOFF_auto);
    CU_ASSERT_EQUAL(env.clock, STEPAF_ENV_CLOCK_auto);
    stepaf_env_free(&env);
}

static void check_integer_bounds(int index, const struct stepaf_env_row *row)
{
    char text[64];
    snprintf(text, sizeof text, "%lld", (long long)row->min);
    expect_value(index, text);
    snprintf(text, sizeof text, "%lld", (long long)row->max);
    expect_value(index, text);
    snprintf(text, sizeof text, "%lld", (long long)row->max + 1);
    expect_refusal(index, text);
    snprintf(text, sizeof text, "%lld", (long long)row->min - 1);
    expect_refusal(index, text);
}

static void integers(void)
{
    static const char *const bad[] = {
        "",
        " ",
        "x",
        "-1",
        "+16",
        " 16",
        "16 ",
        "16k",
        "0x10",
        "1.5",
        "1e3",
        "16\n",
        "1,6",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551632",
        "99999999999999999999999999999999999999999999999999999999999999999999999999",
    };
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        const struct stepaf_env_row *row = &stepaf_env_table[i];
        if (row->kind != STEPAF_ENV_KIND_INT)
            continue;
        check_integer_bounds(i, row);
        for (size_t j = 0; j < sizeof bad / sizeof *bad; j++)
            if (!strchr(bad[j], '\n'))
                expect_refusal(i, bad[j]);
        CU_ASSERT_EQUAL(load_one(&(struct stepaf_env){0}, row->info.name, "16\n"),
                        STEPAF_ERR_SETTING);
    }
}

/* 0 would be no deadline, or none but at once. */
static void every_wait_has_a_deadline(void)
{
    int n = 0;
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        const char *name = stepaf_env_table[i].info.name;
        size_t length = strlen(name);
        if (length < 10 || strcmp(name + length - 10, "TIMEOUT_US") != 0)
            continue;
        n++;
        expect_refusal(i, "0");
        expect_refusal(i, "-1");
    }
    CU_ASSERT(n >= 6);
}

static void rules_of_integers(void)
{
    static const char *const not_powers[] = {"5", "17", "1000", "1023"};
    for (size_t i = 0; i < sizeof not_powers / sizeof *not_powers; i++)
        expect_refusal(STEPAF_ENV_SHM_RING_SLOTS, not_powers[i]);
    UNIT_CONTAINS(stepaf_last_error()->text, "a power of two");
    for (int slots = 4; slots <= 1024; slots *= 2) {
        char text[16];
        snprintf(text, sizeof text, "%d", slots);
        expect_value(STEPAF_ENV_SHM_RING_SLOTS, text);
    }
    expect_refusal(STEPAF_ENV_TRACE_RECORDS, "4095");
    expect_value(STEPAF_ENV_TRACE_RECORDS, "32");
    expect_refusal(STEPAF_ENV_SHM_FRAGMENT_BYTES, "4097");
    UNIT_CONTAINS(stepaf_last_error()->text, "a multiple of 4096");
    expect_refusal(STEPAF_ENV_SHM_FRAGMENT_BYTES, "6144");
    expect_value(STEPAF_ENV_SHM_FRAGMENT_BYTES, "12288");
}

static void words(void)
{
    static const char *const bad[] = {"", "?", "AUTO", "on ", " on", "|", "auto|on", "spi", "onn"};
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        const struct stepaf_env_row *row = &stepaf_env_table[i];
        const char *word;
        size_t bytes;
        int n = 0;
        if (row->kind != STEPAF_ENV_KIND_ENUM)
            continue;
        while ((word = stepaf_env_word(row->info.syntax, n, &bytes))) {
            char text[64];
            snprintf(text, sizeof text, "%.*s", (int)bytes, word);
            expect_value(i, text);
            n++;
        }
        CU_ASSERT(n >= 2);
        for (size_t j = 0; j < sizeof bad / sizeof *bad; j++)
            expect_refusal(i, bad[j]);
        expect_refusal(i, row->info.syntax);
    }
}

/* The constant @a value of setting @a index stands for @a expected. */
static void check_constant(int index, int value, const char *expected)
{
    struct stepaf_env env = {0};
    char text[64];
    *(int *)stepaf_env_field(&env, &stepaf_env_table[index]) = value;
    stepaf_env_format(&env, index, text, sizeof text);
    UNIT_STRING(text, expected);
}

static void constants_of_words(void)
{
#define ENUM(NAME, field, default_, ...) \
    check_constant(STEPAF_ENV_##NAME, STEPAF_ENV_##NAME##_DEFAULT, #default_);
#include "settings/all.def"
    check_constant(STEPAF_ENV_MESH, STEPAF_ENV_MESH_lane, "lane");
    check_constant(STEPAF_ENV_SHM_CMA, STEPAF_ENV_SHM_CMA_off, "off");
    check_constant(STEPAF_ENV_VERBS_LAG, STEPAF_ENV_VERBS_LAG_2, "2");
    check_constant(STEPAF_ENV_VERBS_GPU, STEPAF_ENV_VERBS_GPU_staged, "staged");
    check_constant(STEPAF_ENV_LOG_LEVEL, STEPAF_ENV_LOG_LEVEL_trace, "trace");
}

static void texts(void)
{
    size_t bytes = 1 << 20;
    char *longer = malloc(bytes);
    memset(longer, 'x', bytes);
    longer[bytes - 1] = '\0';
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        if (stepaf_env_table[i].kind != STEPAF_ENV_KIND_STR)
            continue;
        if (stepaf_env_table[i].form == STEPAF_ENV_FORM_ANY_TEXT)
            expect_value(i, "some text, with = and\ttab");
        expect_value(i, "");
        expect_refusal(i, longer);
    }
    free(longer);
}

static void format_truncates(void)
{
    struct stepaf_env env;
    char text[8] = "*******";
    CU_ASSERT_EQUAL_FATAL(load_one(&env, "STEPAF_SPLIT", "attn=1000,ffn=1000"), STEPAF_OK);
    stepaf_env_format(&env, STEPAF_ENV_SPLIT, text, 5);
    UNIT_STRING(text, "attn");
    CU_ASSERT_EQUAL(text[5], '*');
    stepaf_env_free(&env);
}

static uint64_t digest_with(const char *name, const char *value)
{
    struct stepaf_env env;
    CU_ASSERT_EQUAL_FATAL(load_one(&env, name, value), STEPAF_OK);
    uint64_t digest = stepaf_env_digest(&env);
    stepaf_env_free(&env);
    return digest;
}

/* A value of the setting that is not its default. */
static const char *other_value(int index)
{
    static char text[64];
    const struct stepaf_env_row *row = &stepaf_env_table[index];
    size_t bytes = 0;
    if (row->kind == STEPAF_ENV_KIND_STR)
        return "7"; /* of any form */
    if (row->kind == STEPAF_ENV_KIND_INT) {
        snprintf(text, sizeof text, "%lld", (long long)row->max);
        return text;
    }
    for (int i = 0;; i++) {
        const char *word = stepaf_env_word(row->info.syntax, i, &bytes);
        snprintf(text, sizeof text, "%.*s", (int)bytes, word);
        if (strcmp(text, row->info.fallback) != 0)
            return text;
    }
}

static void digest_covers_what_must_agree(void)
{
    uint64_t standard = digest_with(NULL, NULL);
    int must_agree = 0;
    CU_ASSERT_NOT_EQUAL(standard, 0);
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        stepaf_env_describe(i, &info);
        uint64_t digest = digest_with(info.name, other_value(i));
        CU_ASSERT_EQUAL(digest != standard, info.must_agree);
        CU_ASSERT_EQUAL(digest_with(info.name, info.fallback), standard);
        must_agree += info.must_agree;
    }
    CU_ASSERT(must_agree > 0 && must_agree < STEPAF_ENV_COUNT);
    CU_ASSERT_NOT_EQUAL(digest_with("STEPAF_SPLIT", "attn=1,ffn=2"),
                        digest_with("STEPAF_SPLIT", "attn=2,ffn=1"));
}

static void count_message(stepaf_log_level_t level, const char *file, int line, const char *message,
                          void *arg)
{
    (void)file;
    (void)line;
    if (level == STEPAF_LOG_WARN && strstr(message, "STEPAF_DEPHT"))
        ++*(int *)arg;
}

/* In a process of its own, as the environment and "once" are the process's. Return the number of
 * warnings about a misspelled name in two loads; 99 if a load fails or does not see a value. */
static int warnings_in_child(const char *log_level)
{
    pid_t child = fork();
    if (child == 0) {
        int warnings = 0;
        setenv("STEPAF_DEPHT", "3", 1);
        setenv("STEPAF_DEPTH", "4", 1);
        setenv("STEPAF_LOG_LEVEL", log_level, 1);
        stepaf_log_set_callback(count_message, &warnings);
        for (int i = 0; i < 2; i++) {
            struct stepaf_env env;
            if (stepaf_env_load(&env) != STEPAF_OK || env.depth != 4)
                _exit(99);
            stepaf_env_free(&env);
        }
        _exit(warnings);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void unknown_variables_are_warned_of_once(void)
{
    CU_ASSERT_EQUAL(warnings_in_child("warn"), 1);
    CU_ASSERT_EQUAL(warnings_in_child("debug"), 1);
    CU_ASSERT_EQUAL(warnings_in_child("error"), 0);
}

static void process_environment_is_checked(void)
{
    struct stepaf_env env;
    setenv("STEPAF_DEPTH", "33", 1);
    CU_ASSERT_EQUAL(stepaf_env_load(&env), STEPAF_ERR_SETTING);
    UNIT_CONTAINS(stepaf_last_error()->text, "STEPAF_DEPTH=33");
    UNIT_CONTAINS(stepaf_last_error()->text, "1..32");
    unsetenv("STEPAF_DEPTH");
}

static void deadline_of_init_is_read_by_itself(void)
{
    setenv("STEPAF_DEPTH", "33", 1);
    setenv("STEPAF_INIT_TIMEOUT_US", "200000", 1);
    CU_ASSERT_EQUAL(stepaf_env_init_timeout_us(), 200000);
    unsetenv("STEPAF_DEPTH");
    stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "from before");
    setenv("STEPAF_INIT_TIMEOUT_US", "soon", 1);
    CU_ASSERT_EQUAL(stepaf_env_init_timeout_us(), 60000000);
    unsetenv("STEPAF_INIT_TIMEOUT_US");
    CU_ASSERT_EQUAL(stepaf_env_init_timeout_us(), 60000000);
    UNIT_STRING(stepaf_last_error()->text, "from before");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"defaults are the table's", defaults_are_the_tables},
        {"integers", integers},
        {"every wait has a deadline", every_wait_has_a_deadline},
        {"rules of integers", rules_of_integers},
        {"words", words},
        {"constants of words", constants_of_words},
        {"texts", texts},
        {"format truncates", format_truncates},
        {"digest covers what must agree", digest_covers_what_must_agree},
        {"unknown variables are warned of once", unknown_variables_are_warned_of_once},
        {"process's environment is checked", process_environment_is_checked},
        {"deadline of init is read by itself", deadline_of_init_is_read_by_itself},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
