/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's place in a job without a launcher: by settings, torchrun's variables, or a host name. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stepaf/status.h>

#include "boot/control/place.h"
#include "unit.h"

/* One environment, NAME=VALUE between blanks, and what it comes to. */
struct row {
    const char *variables;
    const char *host_name;
    const char *expected; /* "rank/size meet", or a part of the sentence */
};

static const char *const names[] = {"RANK",          "WORLD_SIZE",        "MASTER_ADDR",
                                    "MASTER_PORT",   "STEPAF_RANK",       "STEPAF_SIZE",
                                    "STEPAF_MEET",   "STEPAF_NET_PORTS",  "STEPAF_BOOT",
                                    "STEPAF_SECRET", "STEPAF_SECRET_FILE"};

static void set_variables(const char *variables)
{
    char copy[512], *rest = copy;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    snprintf(copy, sizeof copy, "%s", variables);
    for (char *word; (word = strsep(&rest, " "));) {
        char *equals = strchr(word, '=');
        if (!equals)
            continue;
        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
}

static stepaf_status_t find(const char *variables, const char *host_name,
                            struct stepaf_place *place_p)
{
    struct stepaf_env env;

    set_variables(variables);
    stepaf_status_t status = stepaf_env_load_boot(&env);
    if (status != STEPAF_OK)
        return status;
    status = stepaf_place_find(&env, host_name, place_p);
    stepaf_env_free(&env);
    return status;
}

static void places(void)
{
    static const struct row rows[] = {
        {"STEPAF_MEET=h1:4000 STEPAF_RANK=1 STEPAF_SIZE=3", "x", "1/3 h1:4000"},
        {"STEPAF_MEET=[fd00::1]:4000 STEPAF_RANK=0 STEPAF_SIZE=1", "x", "0/1 [fd00::1]:4000"},
        {"RANK=2 WORLD_SIZE=4 MASTER_ADDR=m MASTER_PORT=29500", "x", "2/4 m:30500"},
        {"RANK=2 WORLD_SIZE=4 MASTER_ADDR=fd00::2 MASTER_PORT=64535", "x", "2/4 [fd00::2]:65535"},
        {"RANK=2 WORLD_SIZE=4 MASTER_ADDR=m MASTER_PORT=64536", "x", "2/4 m:63536"},
        {"RANK=2 WORLD_SIZE=4 MASTER_ADDR=m MASTER_PORT=1 STEPAF_MEET=h:9", "x", "2/4 h:9"},
        {"RANK=2 WORLD_SIZE=4 STEPAF_MEET=h:9 STEPAF_RANK=0 STEPAF_SIZE=2", "x", "0/2 h:9"},
        {"STEPAF_MEET=ffn-0.svc:9 STEPAF_SIZE=9", "ffn-7", "7/9 ffn-0.svc:9"},
        {"STEPAF_MEET=ffn-0:9 STEPAF_SIZE=12", "ffn-11", "11/12 ffn-0:9"},
        {"STEPAF_MEET=ffn-0.my-svc:9 STEPAF_SIZE=12", "ffn-3.my-svc.cluster-1.local",
         "3/12 ffn-0.my-svc:9"},
    };
    struct stepaf_place place;
    char text[512];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        stepaf_status_t status = find(rows[i].variables, rows[i].host_name, &place);
        CU_ASSERT_EQUAL(status, STEPAF_OK);
        snprintf(text, sizeof text, "%d/%d %s", place.rank, place.size, place.meet);
        UNIT_STRING(status ? stepaf_last_error()->text : text, rows[i].expected);
        CU_ASSERT(!place.has_secret);
    }
}

/* A name is not an address, whatever it begins with. */
static void loopback(void)
{
    static const struct {
        const char *variables;
        bool is_loopback;
    } rows[] = {
        {"STEPAF_MEET=127.0.0.9:9 STEPAF_RANK=0 STEPAF_SIZE=2", true},
        {"STEPAF_MEET=[::1]:9 STEPAF_RANK=0 STEPAF_SIZE=2", true},
        {"STEPAF_MEET=localhost:9 STEPAF_RANK=0 STEPAF_SIZE=2", true},
        {"STEPAF_MEET=127.racks.example.com:9 STEPAF_RANK=0 STEPAF_SIZE=2", false},
        {"STEPAF_MEET=128.0.0.1:9 STEPAF_RANK=0 STEPAF_SIZE=2", false},
    };
    struct stepaf_place place;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CU_ASSERT_EQUAL(find(rows[i].variables, "x", &place), STEPAF_OK);
        CU_ASSERT_EQUAL(place.is_loopback, rows[i].is_loopback);
    }
}

static void refusals(void)
{
    static const struct row rows[] = {
        {"STEPAF_RANK=1 STEPAF_SIZE=3", "x", "STEPAF_MEET is not set"},
        {"STEPAF_MEET=h1 STEPAF_RANK=1 STEPAF_SIZE=3", "x",
         "STEPAF_MEET=h1: it takes host:port or [address]:port"},
        {"STEPAF_MEET=fd00::1:40 STEPAF_RANK=1 STEPAF_SIZE=3", "x", "it takes host:port"},
        {"STEPAF_MEET=[fd00::1:40 STEPAF_RANK=1 STEPAF_SIZE=3", "x", "it takes host:port"},
        {"STEPAF_MEET=[:40 STEPAF_RANK=1 STEPAF_SIZE=3", "x", "it takes host:port"},
        {"STEPAF_MEET=[]:40 STEPAF_RANK=1 STEPAF_SIZE=3", "x", "it takes host:port"},
        {"STEPAF_MEET=:40 STEPAF_RANK=1 STEPAF_SIZE=3", "x", "it takes host:port"},
        {"STEPAF_MEET=h: STEPAF_RANK=1 STEPAF_SIZE=3", "x", "it takes host:port"},
        {"STEPAF_MEET=h:0 STEPAF_RANK=1 STEPAF_SIZE=3", "x", "it takes host:port"},
        {"STEPAF_MEET=h:65536 STEPAF_RANK=1 STEPAF_SIZE=3", "x", "it takes host:port"},
        {"STEPAF_MEET=h:-1 STEPAF_RANK=1 STEPAF_SIZE=3", "x", "it takes host:port"},
        {"STEPAF_MEET=h:9 STEPAF_RANK=1", "x", "STEPAF_SIZE is not set"},
        {"STEPAF_MEET=h:9 STEPAF_SIZE=3", "x-1", "STEPAF_RANK is not set"},
        {"STEPAF_MEET=ffn-0:9 STEPAF_SIZE=3", "attn-1", "STEPAF_RANK is not set"},
        {"STEPAF_MEET=ffn-0:9 STEPAF_SIZE=3", "ffn-1x", "STEPAF_RANK is not set"},
        {"STEPAF_MEET=ffn-0:9 STEPAF_SIZE=3", "ffn-", "STEPAF_RANK is not set"},
        {"STEPAF_MEET=ffn-0:9 STEPAF_SIZE=3", "ffn-3",
         "rank 3 (STEPAF_RANK) of 3 (STEPAF_SIZE): ranks are 0 to 2"},
        {"STEPAF_MEET=h:9 RANK=one WORLD_SIZE=3", "x",
         "RANK=one: it takes the number of this process"},
        {"STEPAF_MEET=h:9 RANK=1 WORLD_SIZE=0", "x", "WORLD_SIZE=0: it takes the number of"},
        {"RANK=1 WORLD_SIZE=3 MASTER_ADDR=m MASTER_PORT=x", "x", "MASTER_PORT=x: it takes a port"},
        {"RANK=1 WORLD_SIZE=3 MASTER_ADDR= MASTER_PORT=5", "x", "MASTER_ADDR=: it takes the name"},
        {"STEPAF_MEET=h:9 STEPAF_RANK=-1 STEPAF_SIZE=3", "x", "STEPAF_RANK=-1: not a whole number"},
        {"STEPAF_MEET=h:9 STEPAF_RANK=0 STEPAF_SIZE=3 STEPAF_SECRET=a STEPAF_SECRET_FILE=b", "x",
         "STEPAF_SECRET and STEPAF_SECRET_FILE exclude each other"},
    };
    struct stepaf_place place = {.rank = 77};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CU_ASSERT_EQUAL(find(rows[i].variables, rows[i].host_name, &place), STEPAF_ERR_SETTING);
        CU_ASSERT_EQUAL(place.rank, 77);
        UNIT_CONTAINS(stepaf_last_error()->text, rows[i].expected);
    }
}

static void put_secret(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
    CU_ASSERT_EQUAL(chmod(path, mode), 0);
}

static void refuse_file(const char *path, const char *text)
{
    struct stepaf_place place;
    char variables[256];

    snprintf(variables, sizeof variables,
             "STEPAF_MEET=h:9 STEPAF_RANK=0 STEPAF_SIZE=2 STEPAF_SECRET_FILE=%s", path);
    CU_ASSERT_EQUAL(find(variables, "x", &place), STEPAF_ERR_SETTING);
    UNIT_CONTAINS(stepaf_last_error()->text, text);
}

static void secrets(void)
{
    char path[] = "/tmp/stepaf-secret-XXXXXX", variables[256], long_text[1100];
    struct stepaf_place one, other;
    int fd = mkstemp(path);

    CU_ASSERT_FATAL(fd >= 0);
    close(fd);
    CU_ASSERT_EQUAL(
        find("STEPAF_MEET=h:9 STEPAF_RANK=0 STEPAF_SIZE=2 STEPAF_SECRET=abc", "x", &one),
        STEPAF_OK);
    CU_ASSERT(one.has_secret);
    snprintf(variables, sizeof variables,
             "STEPAF_MEET=h:9 STEPAF_RANK=1 STEPAF_SIZE=2 STEPAF_SECRET_FILE=%s", path);
    put_secret(path, "abc\n", 0440);
    CU_ASSERT_EQUAL(find(variables, "x", &other), STEPAF_OK);
    CU_ASSERT(other.has_secret);
    CU_ASSERT_EQUAL(memcmp(one.key, other.key, sizeof one.key), 0);
    put_secret(path, "abd\n", 0600);
    CU_ASSERT_EQUAL(find(variables, "x", &other), STEPAF_OK);
    CU_ASSERT_NOT_EQUAL(memcmp(one.key, other.key, sizeof one.key), 0);
    put_secret(path, "abc", 0644);
    refuse_file(path, "other users can read it");
    put_secret(path, "abc", 0620);
    refuse_file(path, "its group can write it");
    put_secret(path, "\n", 0600);
    refuse_file(path, "the file is empty");
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    put_secret(path, long_text, 0600);
    refuse_file(path, "the file is longer than 1024 bytes");
    unlink(path);
    refuse_file(path, "No such file");
    refuse_file("/tmp", "not a regular file");
}

/* Nobody who looks at settings sees it. */
static void a_secret_is_not_shown(void)
{
    struct stepaf_env env;
    char text[64];

    set_variables("STEPAF_SECRET=hunter2");
    CU_ASSERT_EQUAL_FATAL(stepaf_env_load_boot(&env), STEPAF_OK);
    stepaf_env_format(&env, STEPAF_ENV_SECRET, text, sizeof text);
    UNIT_STRING(text, "(not shown)");
    stepaf_env_free(&env);
    char *long_value = malloc(5000);
    memset(long_value, 'x', 5000);
    long_value[4999] = '\0';
    setenv("STEPAF_SECRET", long_value, 1);
    CU_ASSERT_EQUAL(stepaf_env_load_boot(&env), STEPAF_ERR_SETTING);
    CU_ASSERT_PTR_NULL(strstr(stepaf_last_error()->text, "xxx"));
    free(long_value);
    set_variables("");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"places", places},
        {"loopback", loopback},
        {"refusals", refusals},
        {"secrets", secrets},
        {"a secret is not shown", a_secret_is_not_shown},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
