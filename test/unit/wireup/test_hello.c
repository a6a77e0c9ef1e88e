/* SPDX-License-Identifier: Apache-2.0 */
/* Init's blobs: written and read, damaged in every way, and judged alike by every rank. */
#include <stdlib.h>

#include <stepaf/version.h>

#include "base/error.h"
#include "unit.h"
#include "wireup/hello.h"

enum { RANKS = 3 };

/* A setting that all ranks must agree on, and two that may differ. */
static const char *depth = NULL, *timeout_us = NULL, *boot = NULL;

static const char *get(const char *name, void *arg)
{
    (void)arg;
    if (strcmp(name, "STEPAF_DEPTH") == 0)
        return depth;
    if (strcmp(name, "STEPAF_BOOT") == 0)
        return boot;
    return strcmp(name, "STEPAF_TIMEOUT_US") == 0 ? timeout_us : NULL;
}

static struct stepaf_hello sample(void)
{
    struct stepaf_hello hello = {.said = STEPAF_FFN,
                                 .app_number = 1,
                                 .map_digest = 99,
                                 .pid = 4711,
                                 .node_id = 0x123456789abcdef0u};

    strcpy(hello.host, "somewhere");
    strcpy(hello.binding, "0-3,8");
    return hello;
}

static struct stepaf_pack pack_it(const struct stepaf_hello *hello)
{
    struct stepaf_pack pack = {0};
    struct stepaf_env env;

    CU_ASSERT_EQUAL_FATAL(stepaf_env_load_from(&env, get, NULL), STEPAF_OK);
    stepaf_hello_pack(hello, &env, &pack);
    CU_ASSERT_FALSE_FATAL(pack.failed);
    stepaf_env_free(&env);
    return pack;
}

static bool read_copy(const uint8_t *data, size_t bytes, struct stepaf_hello *intro_p,
                      uint8_t **copy_p)
{
    *copy_p = malloc(bytes ? bytes : 1);
    memcpy(*copy_p, data, bytes);
    return stepaf_hello_read(*copy_p, bytes, intro_p);
}

static void what_is_said_is_read(void)
{
    struct stepaf_hello hello = sample(), it;
    struct stepaf_pack pack = pack_it(&hello);

    CU_ASSERT_TRUE_FATAL(stepaf_hello_read(pack.data, pack.bytes, &it));
    CU_ASSERT(it.status == STEPAF_OK && it.said == STEPAF_FFN && it.pid == 4711);
    CU_ASSERT(it.app_number == 1 && it.map_digest == 99);
    CU_ASSERT_EQUAL(it.wire, STEPAF_WIRE_VERSION);
    UNIT_STRING(it.version, STEPAF_VERSION_STRING);
    CU_ASSERT_EQUAL(it.node_id, hello.node_id);
    UNIT_STRING(it.host, "somewhere");
    UNIT_STRING(it.binding, "0-3,8");
    UNIT_STRING(it.text, "");
    CU_ASSERT_NOT_EQUAL(it.digest, 0);
    free(pack.data);
}

/* Overwrite the wire version, or the first letter of the library's. */
static void another_version_is_named(void)
{
    struct stepaf_hello hello = sample(), all[RANKS];
    struct stepaf_pack pack = pack_it(&hello), other = pack_it(&hello);
    char expected[96];

    snprintf(expected, sizeof expected,
             "libstepaf differs: " STEPAF_VERSION_STRING " (wire version %d) at rank 0, 9",
             STEPAF_WIRE_VERSION);
    for (int r = 0; r < RANKS; r++)
        CU_ASSERT_TRUE_FATAL(stepaf_hello_read(pack.data, pack.bytes, &all[r]));
    other.data[4] = 7;
    other.data[12] = '9';
    memset(other.data + 30, 0xff, 20); /* of what follows nothing is known */
    CU_ASSERT_TRUE_FATAL(stepaf_hello_read(other.data, other.bytes, &all[2]));
    for (int own = 0; own < RANKS; own++) {
        CU_ASSERT_EQUAL(stepaf_hellos_check(all, RANKS, own), STEPAF_ERR_MISMATCH);
        UNIT_CONTAINS(stepaf_last_error()->text, expected);
        UNIT_CONTAINS(stepaf_last_error()->text, "(wire version 7) at rank 2");
        CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, own == 2 ? 0 : 2);
    }
    other.data[4] = 1; /* that one did not say which library it was */
    CU_ASSERT_TRUE_FATAL(stepaf_hello_read(other.data, 8, &all[2]));
    CU_ASSERT_EQUAL(stepaf_hellos_check(all, RANKS, 0), STEPAF_ERR_MISMATCH);
    UNIT_CONTAINS(stepaf_last_error()->text, "of an unknown version (wire version 1) at rank 2");
    pack.data[12] = '\n';
    CU_ASSERT_TRUE_FATAL(stepaf_hello_read(pack.data, pack.bytes, &all[2]));
    CU_ASSERT_EQUAL(stepaf_hellos_check(all, RANKS, 0), STEPAF_ERR_MISMATCH);
    UNIT_CONTAINS(stepaf_last_error()->text, "?");
    free(pack.data);
    free(other.data);
}

static void other_map_files_are_named(void)
{
    struct stepaf_hello hello = sample(), all[RANKS];
    struct stepaf_pack pack = pack_it(&hello);

    for (int r = 0; r < RANKS; r++)
        CU_ASSERT_TRUE_FATAL(stepaf_hello_read(pack.data, pack.bytes, &all[r]));
    all[1].map_digest++;
    for (int own = 0; own < RANKS; own++) {
        CU_ASSERT_EQUAL(stepaf_hellos_check(all, RANKS, own), STEPAF_ERR_MISMATCH);
        UNIT_CONTAINS(stepaf_last_error()->text, "map file");
        UNIT_CONTAINS(stepaf_last_error()->text, "between rank 1 and rank 0");
        CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, own == 1 ? 0 : 1);
    }
    free(pack.data);
}

static void a_secret_at_some_ranks_is_named(void)
{
    struct stepaf_hello with = sample(), without = sample(), all[RANKS];

    with.has_secret = true;
    struct stepaf_pack packs[2] = {pack_it(&without), pack_it(&with)};
    for (int odd = 0; odd < RANKS; odd++)
        for (int has = 0; has < 2; has++) {
            for (int r = 0; r < RANKS; r++) {
                const struct stepaf_pack *pack = &packs[r == odd ? has : !has];
                CU_ASSERT_TRUE_FATAL(stepaf_hello_read(pack->data, pack->bytes, &all[r]));
            }
            for (int own = 0; own < RANKS; own++) {
                int other = odd ? odd : 1; /* the first that differs from rank 0 */
                int set = all[0].has_secret ? 0 : other;
                char text[96];
                snprintf(text, sizeof text,
                         "STEPAF_SECRET_FILE is set at rank %d, and neither at rank %d", set,
                         set ? 0 : other);
                CU_ASSERT_EQUAL(stepaf_hellos_check(all, RANKS, own), STEPAF_ERR_MISMATCH);
                UNIT_CONTAINS(stepaf_last_error()->text, text);
                CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, own == other ? 0 : other);
            }
        }
    free(packs[0].data);
    free(packs[1].data);
}

static void a_failure_is_read(void)
{
    struct stepaf_hello hello = sample(), it;

    hello.status = STEPAF_ERR_SETTING;
    hello.said = 77; /* it may not know it yet */
    strcpy(hello.text, "what is wrong");
    struct stepaf_pack pack = pack_it(&hello);
    CU_ASSERT_TRUE_FATAL(stepaf_hello_read(pack.data, pack.bytes, &it));
    CU_ASSERT_EQUAL(it.status, STEPAF_ERR_SETTING);
    UNIT_STRING(it.text, "what is wrong");
    free(pack.data);
    hello.status = STEPAF_OK;
    pack = pack_it(&hello);
    CU_ASSERT_FALSE(stepaf_hello_read(pack.data, pack.bytes, &it));
    free(pack.data);
}

/* Without its settings, which are there for a sentence only, it can still be read: cut there. */
static void truncations_are_refused_or_harmless(void)
{
    struct stepaf_hello hello = sample(), pair[2];
    struct stepaf_pack pack = pack_it(&hello);
    uint8_t *copy;

    depth = "2";
    struct stepaf_pack other = pack_it(&hello);
    depth = NULL;
    CU_ASSERT_TRUE_FATAL(stepaf_hello_read(other.data, other.bytes, &pair[0]));
    for (size_t bytes = 0; bytes < pack.bytes; bytes++) {
        bool taken = read_copy(pack.data, bytes, &pair[1], &copy);
        CU_ASSERT(!taken || bytes >= 60);
        if (taken)
            CU_ASSERT_EQUAL(stepaf_hellos_check(pair, 2, 0), STEPAF_ERR_MISMATCH);
        free(copy);
    }
    free(pack.data);
    free(other.data);
}

static void every_turned_bit_is_refused_or_harmless(void)
{
    struct stepaf_hello hello = sample(), all[RANKS];
    struct stepaf_pack pack = pack_it(&hello);
    uint8_t *copy;
    int refused = 0;

    for (int r = 1; r < RANKS; r++)
        CU_ASSERT_TRUE_FATAL(stepaf_hello_read(pack.data, pack.bytes, &all[r]));
    struct stepaf_pack turned = pack_it(&hello);
    for (size_t bit = 0; bit < turned.bytes * 8; bit++) {
        turned.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (read_copy(turned.data, turned.bytes, &all[0], &copy)) {
            stepaf_status_t outcome = stepaf_hellos_check(all, RANKS, 0);
            CU_ASSERT(outcome <= STEPAF_OK && stepaf_status_from((uint32_t)outcome) == outcome);
            for (int r = 1; r < RANKS; r++)
                CU_ASSERT_EQUAL(stepaf_hellos_check(all, RANKS, r), outcome);
            int sharing = stepaf_hellos_sharing(all, RANKS, 1);
            CU_ASSERT(sharing == RANKS || sharing == RANKS - 1);
        } else {
            refused++;
        }
        free(copy);
        turned.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    CU_ASSERT(refused >= 32); /* the magic at the least */
    free(turned.data);
    free(pack.data);
}

/* Read what ranks say of which one has another depth; the timeout, which comes before it in the
 * table, differs everywhere. So does what is said of a bootstrap: ranks that hear each other have
 * the same. */
static void differ(const char *other_depth, int rank, struct stepaf_hello *hellos,
                   struct stepaf_pack *packs)
{
    static const char *const timeouts_us[RANKS] = {"77", "88", "99"};
    static const char *const boots[RANKS] = {"tcp", "auto", "mpi"};
    struct stepaf_hello hello = sample();

    for (int r = 0; r < RANKS; r++) {
        depth = r == rank ? other_depth : NULL;
        timeout_us = timeouts_us[r];
        boot = boots[r];
        packs[r] = pack_it(&hello);
        CU_ASSERT_TRUE_FATAL(stepaf_hello_read(packs[r].data, packs[r].bytes, &hellos[r]));
    }
    depth = timeout_us = boot = NULL;
}

static void settings_that_must_agree_are_named(void)
{
    struct stepaf_hello hellos[RANKS];
    struct stepaf_pack packs[RANKS];

    for (int rank = 0; rank < RANKS; rank++) {
        differ("5", rank, hellos, packs);
        for (int own = 0; own < RANKS; own++) {
            CU_ASSERT_EQUAL(stepaf_hellos_check(hellos, RANKS, own), STEPAF_ERR_MISMATCH);
            UNIT_STRING(stepaf_last_error()->text,
                        rank == 0   ? "STEPAF_DEPTH differs: \"5\" at rank 0, \"1\" at rank 1"
                        : rank == 1 ? "STEPAF_DEPTH differs: \"1\" at rank 0, \"5\" at rank 1"
                                    : "STEPAF_DEPTH differs: \"1\" at rank 0, \"5\" at rank 2");
        }
        for (int r = 0; r < RANKS; r++)
            free(packs[r].data);
    }
}

static void other_settings_may_differ(void)
{
    struct stepaf_hello hellos[RANKS];
    struct stepaf_pack packs[RANKS];

    differ(NULL, 0, hellos, packs);
    for (int own = 0; own < RANKS; own++)
        CU_ASSERT_EQUAL(stepaf_hellos_check(hellos, RANKS, own), STEPAF_OK);
    for (int r = 0; r < RANKS; r++)
        free(packs[r].data);
}

static void the_first_failing_rank_decides(void)
{
    struct stepaf_hello hellos[RANKS] = {sample(), sample(), sample()};

    hellos[1].status = STEPAF_ERR_SPLIT;
    strcpy(hellos[1].text, "one");
    hellos[2].status = STEPAF_ERR_SETTING;
    strcpy(hellos[2].text, "two");
    hellos[2].digest = 5;
    for (int own = 0; own < RANKS; own++) {
        CU_ASSERT_EQUAL(stepaf_hellos_check(hellos, RANKS, own), STEPAF_ERR_SPLIT);
        UNIT_STRING(stepaf_last_error()->text, own == 1 ? "one" : "rank 1: one");
    }
}

/* Those that nobody is yet are expected on the only node, else elsewhere; in the rest they agree
 * with all. */
static void vacant_ranks_are_expected_somewhere(void)
{
    struct stepaf_hello hellos[RANKS + 1] = {sample(), sample(), sample()};

    for (int r = 0; r < RANKS; r++)
        hellos[r].has_secret = true;
    hellos[RANKS] = stepaf_hello_vacant(hellos, RANKS);
    CU_ASSERT(hellos[RANKS].is_vacant && !hellos[RANKS].proxies);
    CU_ASSERT_EQUAL(hellos[RANKS].node_id, hellos[0].node_id);
    CU_ASSERT_EQUAL(stepaf_hellos_check(hellos, RANKS + 1, 0), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_hellos_sharing(hellos, RANKS + 1, 0), RANKS);
    hellos[RANKS - 1].node_id++;
    CU_ASSERT_EQUAL(stepaf_hello_vacant(hellos, RANKS).node_id, 0);
}

/* Who may run on the first rank's cores; a list that makes no sense is taken for all cores. */
static void sharing_is_by_node_and_core(void)
{
    static const struct {
        const char *first, *second;
        bool share;
    } cases[] = {
        {"0", "0", true},      {"0", "1", false},      {"0-3", "3-5", true},
        {"0-3", "4-7", false}, {"0-3,8", "8", true},   {"0-3,8", "4-7,9", false},
        {"5,1", "1", true},    {"1023", "1023", true}, {"1022", "1023", false},
        {"0", "", false},      {"0", "x", true},       {"0", "3-", true},
        {"0", "3-1", true},    {"0", "1024", true},    {"0", "1;2", true},
        {"0", "-1", true},     {"0", "1,", false},     {"0", "18446744073709551616", true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stepaf_hello hellos[2] = {sample(), sample()};
        strcpy(hellos[0].binding, cases[i].first);
        strcpy(hellos[1].binding, cases[i].second);
        CU_ASSERT_EQUAL(stepaf_hellos_sharing(hellos, 2, 0), cases[i].share ? 2 : 1);
        hellos[1].node_id++;
        CU_ASSERT_EQUAL(stepaf_hellos_sharing(hellos, 2, 0), 1);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is said is read", what_is_said_is_read},
        {"another version is named", another_version_is_named},
        {"other map files are named", other_map_files_are_named},
        {"a secret at some ranks is named", a_secret_at_some_ranks_is_named},
        {"a failure is read", a_failure_is_read},
        {"truncations are refused or harmless", truncations_are_refused_or_harmless},
        {"every turned bit is refused or harmless", every_turned_bit_is_refused_or_harmless},
        {"settings that must agree are named", settings_that_must_agree_are_named},
        {"other settings may differ", other_settings_may_differ},
        {"the first failing rank decides", the_first_failing_rank_decides},
        {"vacant ranks are expected somewhere", vacant_ranks_are_expected_somewhere},
        {"sharing is by node and core", sharing_is_by_node_and_core},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
