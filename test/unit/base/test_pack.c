/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs: what is written is read back, and a reader never leaves the bytes it was given. */
#include <stdlib.h>

#include "base/pack.h"
#include "unit.h"

static const char words[] = "words of some length";

static struct stepaf_pack sample(void)
{
    struct stepaf_pack pack = {0};

    stepaf_pack_u32(&pack, 0x01020304);
    stepaf_pack_u64(&pack, 0x1122334455667788u);
    stepaf_pack_text(&pack, words);
    stepaf_pack_text(&pack, "");
    stepaf_pack_bytes(&pack, "xyz", 3);
    CU_ASSERT_FALSE_FATAL(pack.failed);
    return pack;
}

static void what_is_written_is_read(void)
{
    struct stepaf_pack pack = sample();
    struct stepaf_unpack unpack = stepaf_unpack_from(pack.data, pack.bytes);
    char text[64] = "?";

    CU_ASSERT_EQUAL(stepaf_unpack_u32(&unpack), 0x01020304);
    CU_ASSERT_EQUAL(stepaf_unpack_u64(&unpack), 0x1122334455667788u);
    stepaf_unpack_text(&unpack, text, sizeof text);
    UNIT_STRING(text, words);
    stepaf_unpack_text(&unpack, text, sizeof text);
    UNIT_STRING(text, "");
    const char *place = stepaf_unpack_bytes(&unpack, 3);
    CU_ASSERT_PTR_NOT_NULL_FATAL(place);
    CU_ASSERT_EQUAL(memcmp(place, "xyz", 3), 0);
    CU_ASSERT_FALSE(unpack.failed);
    CU_ASSERT_PTR_EQUAL(unpack.at, unpack.end);
    free(pack.data);
}

/* Ranks may be of another byte order one day; the wire has one. */
static void numbers_are_little_endian(void)
{
    static const uint8_t expected[] = {4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
    struct stepaf_pack pack = sample();

    CU_ASSERT_FATAL(pack.bytes > sizeof expected);
    CU_ASSERT_EQUAL(memcmp(pack.data, expected, sizeof expected), 0);
    free(pack.data);
}

static void it_grows(void)
{
    struct stepaf_pack pack = {0};
    int wrong = 0;

    for (uint32_t i = 0; i < 5000; i++)
        stepaf_pack_u32(&pack, i);
    stepaf_pack_bytes(&pack, NULL, 0);
    CU_ASSERT_FALSE(pack.failed);
    CU_ASSERT_EQUAL_FATAL(pack.bytes, 5000 * sizeof(uint32_t));
    struct stepaf_unpack unpack = stepaf_unpack_from(pack.data, pack.bytes);
    for (uint32_t i = 0; i < 5000; i++)
        wrong += stepaf_unpack_u32(&unpack) != i;
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_FALSE(unpack.failed);
    free(pack.data);
}

/* Of every beginning: what is there is read, the rest is 0, and the failure stays. */
static void every_truncation_fails(void)
{
    struct stepaf_pack pack = sample();

    for (size_t bytes = 0; bytes < pack.bytes; bytes++) {
        uint8_t *copy = malloc(bytes + 1); /* of exact size for a sanitizer, but never 0 */
        memcpy(copy, pack.data, bytes);
        struct stepaf_unpack unpack = stepaf_unpack_from(copy, bytes);
        char text[64], empty[4] = "?";
        uint32_t small = stepaf_unpack_u32(&unpack);
        uint64_t large = stepaf_unpack_u64(&unpack);
        stepaf_unpack_text(&unpack, text, sizeof text);
        stepaf_unpack_text(&unpack, empty, sizeof empty);
        const void *place = stepaf_unpack_bytes(&unpack, 3);
        CU_ASSERT(small == (bytes >= 4 ? 0x01020304 : 0));
        CU_ASSERT(large == (bytes >= 12 ? 0x1122334455667788u : 0));
        UNIT_STRING(text, bytes >= 16 + strlen(words) ? words : "");
        UNIT_STRING(empty, "");
        CU_ASSERT_PTR_NULL(place);
        CU_ASSERT_TRUE(unpack.failed);
        CU_ASSERT_PTR_NULL(stepaf_unpack_bytes(&unpack, 0));
        free(copy);
    }
    free(pack.data);
}

static void texts_are_cut(void)
{
    struct stepaf_pack pack = {0};
    char text[6];

    stepaf_pack_text(&pack, words);
    stepaf_pack_u32(&pack, 7);
    struct stepaf_unpack unpack = stepaf_unpack_from(pack.data, pack.bytes);
    stepaf_unpack_text(&unpack, text, sizeof text);
    UNIT_STRING(text, "words");
    CU_ASSERT_EQUAL(stepaf_unpack_u32(&unpack), 7);
    unpack = stepaf_unpack_from(pack.data, pack.bytes);
    stepaf_unpack_text(&unpack, text, 1);
    UNIT_STRING(text, "");
    CU_ASSERT_FALSE(unpack.failed);
    free(pack.data);
}

static void lengths_that_lie_fail(void)
{
    static const uint32_t lies[] = {1, 5, 0x7fffffff, 0x80000000, 0xfffffffc, 0xffffffff};
    char text[16];

    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct stepaf_unpack unpack = stepaf_unpack_from(&lies[i], sizeof lies[i]);
        stepaf_unpack_text(&unpack, text, sizeof text);
        CU_ASSERT_TRUE(unpack.failed);
        UNIT_STRING(text, "");
        unpack = stepaf_unpack_from(&lies[i], sizeof lies[i]);
        CU_ASSERT_PTR_NULL(stepaf_unpack_bytes(&unpack, SIZE_MAX - i));
        CU_ASSERT_TRUE(unpack.failed);
    }
}

static void nothing_is_readable_too(void)
{
    struct stepaf_unpack unpack = stepaf_unpack_from("", 0);

    CU_ASSERT_PTR_NOT_NULL(stepaf_unpack_bytes(&unpack, 0));
    CU_ASSERT_FALSE(unpack.failed);
    CU_ASSERT_EQUAL(stepaf_unpack_u32(&unpack), 0);
    CU_ASSERT_TRUE(unpack.failed);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is written is read", what_is_written_is_read},
        {"numbers are little-endian", numbers_are_little_endian},
        {"it grows", it_grows},
        {"every truncation fails", every_truncation_fails},
        {"texts are cut", texts_are_cut},
        {"lengths that lie fail", lengths_that_lie_fail},
        {"nothing is readable too", nothing_is_readable_too},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
