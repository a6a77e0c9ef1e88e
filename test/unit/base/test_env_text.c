/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that are text: what of it is refused when they are read, used or not. */
#include <netinet/in.h>

#include "base/env_text.h"
#include "settings/settings.h"
#include "unit.h"

static void ports_are_parsed(void)
{
    static const struct {
        const char *text;
        bool good;
        uint16_t first, last;
    } cases[] = {
        {"", true, 0, 0},
        {"1", true, 1, 1},
        {"65535", true, 65535, 65535},
        {"20000-20999", true, 20000, 20999},
        {"7-7", true, 7, 7},
        {"0", false, 0, 0},
        {"0-5", false, 0, 0},
        {"65536", false, 0, 0},
        {"1-65536", false, 0, 0},
        {"9-8", false, 0, 0},
        {"-5", false, 0, 0},
        {"5-", false, 0, 0},
        {"5--6", false, 0, 0},
        {"5-+6", false, 0, 0},
        {"+5", false, 0, 0},
        {" 5", false, 0, 0},
        {"5 ", false, 0, 0},
        {"5-6-7", false, 0, 0},
        {"0x10", false, 0, 0},
        {"18446744073709551617", false, 0, 0},
        {"1-18446744073709551617", false, 0, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t first = 4711, last = 4712;
        bool good = stepaf_env_ports(cases[i].text, &first, &last);
        CU_ASSERT_EQUAL(good, cases[i].good);
        CU_ASSERT(good ? first == cases[i].first && last == cases[i].last
                       : first == 4711 && last == 4712);
        if (good != cases[i].good)
            fprintf(stderr, "\n    \"%s\"\n", cases[i].text);
    }
}

static void subnets_are_parsed(void)
{
    struct stepaf_env_subnet subnet;

    CU_ASSERT_TRUE(stepaf_env_subnet("10.1.0.0/16", &subnet));
    CU_ASSERT(subnet.family == AF_INET && subnet.prefix == 16);
    CU_ASSERT_EQUAL(memcmp(subnet.bytes, "\x0a\x01\0\0", 4), 0);
    CU_ASSERT_TRUE(stepaf_env_subnet("fd00::/128", &subnet));
    CU_ASSERT(subnet.family == AF_INET6 && subnet.prefix == 128 && subnet.bytes[0] == 0xfd);
    CU_ASSERT_FALSE(stepaf_env_subnet("10.1.0.0", &subnet));
    CU_ASSERT_FALSE(stepaf_env_subnet("", &subnet));
    CU_ASSERT_EQUAL(subnet.prefix, 128);
}

/* An environment of one variable. */
struct variable {
    const char *name;
    const char *value;
};

static const char *get_one(const char *name, void *arg)
{
    const struct variable *variable = arg;
    return strcmp(name, variable->name) == 0 ? variable->value : NULL;
}

static stepaf_status_t load(const char *name, const char *value)
{
    struct variable variable = {name, value};
    struct stepaf_env env;
    stepaf_status_t status = stepaf_env_load_from(&env, get_one, &variable);

    if (status == STEPAF_OK)
        stepaf_env_free(&env);
    return status;
}

static void good_text_is_taken(void)
{
    static const struct variable good[] = {
        {"STEPAF_NET_PORTS", ""},
        {"STEPAF_NET_PORTS", "20000-20999"},
        {"STEPAF_NET_IF", ""},
        {"STEPAF_NET_IF", "no-such.interface@here"},
        {"STEPAF_NET_IF", "10.1.0.0/16"},
        {"STEPAF_NET_IF", "fd00::/64"},
        {"STEPAF_VERBS_GID_INDEX", ""},
        {"STEPAF_VERBS_GID_INDEX", "3"},
        {"STEPAF_TRANSPORTS", ""},
        {"STEPAF_TRANSPORTS", "shm"},
        {"STEPAF_TRANSPORTS", "shm,verbs,tcp"},
        {"STEPAF_TRANSPORTS", " shm , tcp "},
        {"STEPAF_TRANSPORTS", "shm tcp"},
        {"STEPAF_TRANSPORTS", "tcp,tcpx,tc"},
        {"STEPAF_LOCAL_JOB", ""},
        {"STEPAF_LOCAL_JOB", "aZ09._-"},
        {"STEPAF_LOCAL_JOB", "1234567890123456789012345678901234567890123456789012345678901234"},
    };

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CU_ASSERT_EQUAL(load(good[i].name, good[i].value), STEPAF_OK);
    }
}

static void bad_text_is_refused(void)
{
    static const struct variable bad[] = {
        {"STEPAF_NET_PORTS", "10-5"},
        {"STEPAF_NET_PORTS", "0"},
        {"STEPAF_NET_PORTS", "abc"},
        {"STEPAF_NET_IF", "10.1.0.0/99"},
        {"STEPAF_NET_IF", "lo/8"},
        {"STEPAF_VERBS_GID_INDEX", "abc"},
        {"STEPAF_VERBS_GID_INDEX", "-1"},
        {"STEPAF_VERBS_GID_INDEX", " 1"},
        {"STEPAF_TRANSPORTS", "tcp,,shm"},
        {"STEPAF_TRANSPORTS", "tcp, ,shm"},
        {"STEPAF_TRANSPORTS", ",tcp"},
        {"STEPAF_TRANSPORTS", "tcp,"},
        {"STEPAF_TRANSPORTS", " "},
        {"STEPAF_TRANSPORTS", ","},
        {"STEPAF_TRANSPORTS", "shm,shm"},
        {"STEPAF_TRANSPORTS", "shm,tcp shm"},
        {"STEPAF_LOCAL_JOB", "a b"},
        {"STEPAF_LOCAL_JOB", "a/b"},
        {"STEPAF_LOCAL_JOB", "12345678901234567890123456789012345678901234567890123456789012345"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char start[64];
        snprintf(start, sizeof start, "%s=%.8s", bad[i].name, bad[i].value);
        CU_ASSERT_EQUAL(load(bad[i].name, bad[i].value), STEPAF_ERR_SETTING);
        UNIT_CONTAINS(stepaf_last_error()->text, start);
        UNIT_CONTAINS(stepaf_last_error()->text, "; it takes ");
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"ports are parsed", ports_are_parsed},
        {"subnets are parsed", subnets_are_parsed},
        {"good text is taken", good_text_is_taken},
        {"bad text is refused", bad_text_is_refused},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
