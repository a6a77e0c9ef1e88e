/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to ids and back; tokenizers that are of another kind. */
#include <stdlib.h>

#include "bench/decode/tokenizer.h"
#include "unit/unit.h"

static struct tokenizer *tokenizer;
static char *why_not;
static struct reason reason;

/* The usual stand-in for a byte, found in another way than the code under test does. */
static void stand_in(int byte, char text[3])
{
    static const char plain[] = "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
                                "abcdefghijklmnopqrstuvwxyz{|}~";
    int code = byte;
    if (byte < 33)
        code = 0x100 + byte;
    else if (byte > 126 && byte < 161)
        code = 0x121 + byte - 127;
    else if (byte == 173)
        code = 0x143;
    else if (byte < 127 && !strchr(plain, byte))
        CU_FAIL("a printable character is missing");
    snprintf(text, 3, code < 128 ? "%c" : "%c%c", code < 128 ? code : 0xc0 | code >> 6,
             0x80 | (code & 0x3f));
}

/* A tokenizer whose id for byte b is b + @a shift mod 256, and 256 for "<end>". */
static json_t *make(int shift)
{
    json_t *vocab = json_object();
    for (int b = 0; b < 256; b++) {
        char text[3];
        stand_in(b, text);
        json_object_set_new(vocab, text, json_integer((b + shift) % 256));
    }
    return json_pack("{s:{s:s, s:o, s:[]}, s:{s:s, s:b}, s:n, s:[{s:i, s:s}]}", "model", "type",
                     "BPE", "vocab", vocab, "merges", "pre_tokenizer", "type", "ByteLevel",
                     "add_prefix_space", 0, "normalizer", "added_tokens", "id", 256, "content",
                     "<end>");
}

static int parse(json_t *root, int vocab)
{
    free(why_not);
    reason.text[0] = '\0';
    int result = tokenizer_parse(root, "tokenizer.json", vocab, &tokenizer, &why_not, &reason);
    json_decref(root);
    return result;
}

static void bytes_and_back(void)
{
    for (int shift = 0; shift < 256; shift += 85) {
        CU_ASSERT_EQUAL_FATAL(parse(make(shift), 257), 0);
        CU_ASSERT_PTR_NOT_NULL_FATAL(tokenizer);
        for (int b = 1; b < 256; b++) {
            const char text[] = {(char)b};
            const char *back = NULL;
            int *ids;
            size_t count;
            CU_ASSERT_EQUAL(tokenizer_encode(tokenizer, text, 1, &ids, &count, &reason), 0);
            CU_ASSERT_EQUAL(count, 1);
            CU_ASSERT_EQUAL(ids[0], (b + shift) % 256);
            CU_ASSERT_EQUAL(tokenizer_decode(tokenizer, ids[0], &back), 1);
            CU_ASSERT_EQUAL(back[0], (char)b);
            free(ids);
        }
        tokenizer_free(tokenizer);
    }
}

static void special_texts(void)
{
    static const char text[] = "a<end><en";
    static const int expected[] = {'a', 256, '<', 'e', 'n'};
    const char *back = NULL;
    int *ids;
    size_t count;
    CU_ASSERT_EQUAL_FATAL(parse(make(0), 300), 0);
    CU_ASSERT_EQUAL(tokenizer_encode(tokenizer, text, strlen(text), &ids, &count, &reason), 0);
    CU_ASSERT_EQUAL_FATAL(count, 5);
    CU_ASSERT_EQUAL(memcmp(ids, expected, sizeof(expected)), 0);
    free(ids);
    CU_ASSERT_EQUAL(tokenizer_decode(tokenizer, 256, &back), 5);
    CU_ASSERT_EQUAL(memcmp(back, "<end>", 5), 0);
    CU_ASSERT_EQUAL(tokenizer_decode(tokenizer, 299, &back), 0);
    CU_ASSERT_EQUAL(tokenizer_decode(tokenizer, -1, &back), 0);
    CU_ASSERT_EQUAL(tokenizer_decode(tokenizer, 300, &back), 0);
    tokenizer_free(tokenizer);
}

/* Of another kind: no error, no tokenizer, and a word why. */
static void refused(json_t *root, const char *pattern)
{
    CU_ASSERT_EQUAL(parse(root, 257), 0);
    CU_ASSERT_PTR_NULL(tokenizer);
    CU_ASSERT_PTR_NOT_NULL_FATAL(why_not);
    UNIT_CONTAINS(why_not, pattern);
}

static json_t *changed(const char *outer, json_t *value)
{
    json_t *root = make(0);
    json_object_update(json_object_get(root, outer), value);
    json_decref(value);
    return root;
}

static void other_kinds(void)
{
    refused(json_object(), "not BPE");
    refused(changed("model", json_pack("{s:s}", "type", "Unigram")), "not BPE");
    refused(changed("model", json_pack("{s:[s]}", "merges", "a b")), "merges");
    refused(changed("model", json_pack("{s:{}}", "vocab")), "not the 256 bytes");
    refused(changed("pre_tokenizer", json_pack("{s:b}", "add_prefix_space", 1)), "space");
    refused(changed("pre_tokenizer", json_pack("{s:s}", "type", "Metaspace")), "into bytes");
    json_t *normalizing = make(0);
    json_object_set_new(normalizing, "normalizer", json_pack("{s:s}", "type", "NFC"));
    refused(normalizing, "normalizes");
}

static void contradictions(void)
{
    CU_ASSERT_EQUAL(parse(make(0), 256), -1);
    UNIT_CONTAINS(reason.text, "not in 0..255");
    json_t *root = make(0);
    json_object_set_new(root, "added_tokens", json_pack("[{s:i, s:s}]", "id", 65, "content", "x"));
    CU_ASSERT_EQUAL(parse(root, 257), -1);
    UNIT_CONTAINS(reason.text, "id 65 stands for two texts");
    root = make(0);
    json_object_set_new(root, "added_tokens", json_pack("[{s:i}]", "id", 256));
    CU_ASSERT_EQUAL(parse(root, 257), -1);
    UNIT_CONTAINS(reason.text, "no content");
    free(why_not);
    why_not = NULL;
}

int main(void)
{
    CU_TestInfo tests[] = {{"bytes and back", bytes_and_back},
                           {"special texts", special_texts},
                           {"other kinds", other_kinds},
                           {"contradictions", contradictions},
                           CU_TEST_INFO_NULL};
    return unit_run(tests);
}
