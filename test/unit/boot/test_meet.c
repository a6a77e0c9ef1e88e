/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that meet over TCP: how they find each other, and what all are told when that does not come
 * about. */
#include "meets.h"

static void all_find_each_other(void)
{
    static const int sizes[] = {1, 2, 3, 5, MEET_RANKS};
    struct meet meets[MEET_RANKS];
    /* Of 16 ranks' 4 MB each, ThreadSanitizer notes every word. */
    size_t many_bytes = getenv("TEST_LIGHT") ? 2000 : 30000;
    int before = meet_count_fds();

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int late = 0; late < 3; late++) { /* nobody, rank 0, the last one */
            meet_prepare(meets, sizes[s], MEET_LONG_US);
            meets[late == 1 ? 0 : sizes[s] - 1].delay_us = late ? 30000 : 0;
            for (int i = 0; i < sizes[s]; i++) {
                meets[i].secret = late ? "known to all" : NULL;
                meets[i].bytes = sizes[s] == MEET_RANKS ? many_bytes : 30000;
            }
            meet_run(meets, sizes[s]);
            for (int i = 0; i < sizes[s]; i++)
                meet_expect(&meets[i], STEPAF_OK, "");
        }
    CU_ASSERT_EQUAL(meet_count_fds(), before);
}

static void one_context_after_the_other(void)
{
    struct meet meets[3];

    meet_prepare(meets, 3, MEET_LONG_US);
    for (int i = 0; i < 3; i++)
        meets[i].rounds = 30;
    meet_run(meets, 3);
    for (int i = 0; i < 3; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

static void names_and_both_families(void)
{
    static const char *const hosts[] = {"localhost", "[::1]"};
    struct meet meets[3];

    for (int h = 0; h < (has_ipv6() ? 2 : 1); h++) {
        meet_prepare(meets, 3, MEET_LONG_US);
        for (int i = 0; i < 3; i++)
            snprintf(meets[i].meet, sizeof meets[i].meet, "%s:%u", hosts[h], meet_port);
        meet_run(meets, 3);
        for (int i = 0; i < 3; i++)
            meet_expect(&meets[i], STEPAF_OK, "");
    }
}

static void who_is_missing_is_named(void)
{
    struct meet meets[5];
    int before = meet_count_fds();

    /* Whoever gives up first is heard by all. */
    meet_prepare(meets, 5, MEET_LONG_US);
    meets[2].timeout_us = MEET_SOME_US;
    meet_run(meets, 3);
    for (int i = 0; i < 3; i++) {
        meet_expect(&meets[i], STEPAF_ERR_TIMEOUT,
                    "ranks 3, 4 did not arrive in time; 3 of 5 are here");
        CU_ASSERT_EQUAL(meets[i].error.peer_world_rank, 3);
    }
    meet_prepare(meets, 3, MEET_SHORT_US);
    meet_run(meets, 1);
    meet_expect(&meets[0], STEPAF_ERR_TIMEOUT,
                "ranks 1, 2 did not arrive in time; 1 of 3 are here; check that ");
    meet_prepare(meets, 3, MEET_SHORT_US);
    meet_run(meets + 1, 2);
    meet_expect(&meets[1], STEPAF_ERR_TIMEOUT, "rank 0 did not arrive in time: Connection refused");
    meet_expect(&meets[2], STEPAF_ERR_TIMEOUT, "rank 0 did not arrive in time: Connection refused");
    CU_ASSERT_EQUAL(meet_count_fds(), before);
}

/* What one has been told wrong, all hear at once, however late they are. */
static void contradictions(void)
{
    struct meet meets[3];

    for (int late = 0; late < 2; late++) {
        meet_prepare(meets, 3, MEET_LONG_US);
        meets[2].size = 4;
        meets[1].delay_us = late ? 200000 : 0;
        meet_run(meets, 3);
        for (int i = 0; i < 3; i++)
            meet_expect(&meets[i], STEPAF_ERR_BOOT,
                        late ? "differs: 3 at rank 0, 4 at rank 2" : "differs: 3 at rank 0, 4 at");
        meet_prepare(meets, 3, MEET_LONG_US);
        meets[2].rank = 1;
        meets[2].delay_us = late ? 200000 : 0;
        meet_run(meets, 3);
        for (int i = 0; i < 3; i++)
            meet_expect(&meets[i], STEPAF_ERR_BOOT, "two processes are rank 1 (STEPAF_RANK, RANK)");
    }
}

/* The one says so at once; the others cannot know that it was a rank, until it does not come. */
static void another_secret(void)
{
    struct meet meets[3];

    meet_prepare(meets, 3, MEET_SOME_US);
    meets[0].secret = meets[1].secret = "right";
    meets[2].secret = "wrong";
    int64_t began_ns = stepaf_monotonic_ns();
    meet_start(meets, 3);
    pthread_join(meets[2].thread, NULL);
    CU_ASSERT(stepaf_monotonic_ns() - began_ns < MEET_SOME_US * 1000LL);
    meet_expect(&meets[2], STEPAF_ERR_BOOT,
                "rank 2 was rejected: the other end has a different secret");
    meet_finish(meets, 2);
    for (int i = 0; i < 2; i++)
        meet_expect(&meets[i], STEPAF_ERR_TIMEOUT,
                    "rank 2 did not arrive in time; 2 of 3 are here; a process that claims to be "
                    "rank 2 does not know the secret (STEPAF_SECRET)");
    meet_prepare(meets, 2, MEET_SHORT_US);
    meets[0].secret = "right";
    meet_run(meets, 2);
    meet_expect(&meets[1], STEPAF_ERR_BOOT, "the other end has a different secret");
}

static void a_port_in_use(void)
{
    struct meet meets[2];

    meet_prepare(meets, 2, MEET_LONG_US);
    meets[1].rank = 0;
    meet_start(meets, 1);
    while (true) { /* until the first has it */
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons(meet_port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int failed = connect(fd, (struct sockaddr *)&address, sizeof address);
        close(fd);
        if (!failed)
            break;
    }
    meet_run(meets + 1, 1);
    meet_expect(&meets[1], STEPAF_ERR_BOOT, "is in use by another program or another rank 0");
    meets[1].rank = 1;
    meets[1].status = STEPAF_OK;
    meet_run(meets + 1, 1);
    meet_finish(meets, 1);
    meet_expect(&meets[0], STEPAF_OK, "");
}

static void a_name_without_an_address(void)
{
    struct meet meet;

    meet_prepare(&meet, 1, MEET_SHORT_US);
    meet.size = 2;
    meet.rank = 1;
    snprintf(meet.meet, sizeof meet.meet, "nowhere.invalid:%u", meet_port);
    meet_run(&meet, 1);
    meet_expect(&meet, STEPAF_ERR_TIMEOUT,
                "rank 0 did not arrive in time: the name has no address: ");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"all find each other", all_find_each_other},
        {"one context after the other", one_context_after_the_other},
        {"names and both families", names_and_both_families},
        {"who is missing is named", who_is_missing_is_named},
        {"contradictions", contradictions},
        {"another secret", another_secret},
        {"a port in use", a_port_in_use},
        {"a name without an address", a_name_without_an_address},
        CU_TEST_INFO_NULL,
    };
    meet_forget_launchers();
    setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);
    return unit_run(tests);
}
