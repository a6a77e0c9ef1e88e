/* SPDX-License-Identifier: Apache-2.0 */
/* Split strings and map files, good and bad. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "boot/split.h"
#include "unit.h"

enum { SIZE_MAX_HERE = 64, UNTOUCHED = 0x5a };

/* Roles as a string of A and F. */
static void show(const uint8_t *roles, int size, char *text)
{
    for (int i = 0; i < size; i++)
        text[i] = roles[i] == STEPAF_ATTENTION ? 'A' : roles[i] == STEPAF_FFN ? 'F' : '?';
    text[size] = '\0';
}

/* Parse and deal to ranks of which @a nodes says the node, a letter each; NULL: all on one. */
static stepaf_status_t split_up(const char *text, const char *nodes, int size, uint8_t *roles)
{
    static const char hosts[][2] = {"a", "b", "c", "d"};
    struct stepaf_split_rank ranks[SIZE_MAX_HERE];
    struct stepaf_split split;
    stepaf_status_t status = stepaf_split_parse(text, size, &split);

    if (status)
        return status;
    for (int r = 0; r < size; r++) {
        int node = nodes ? nodes[r] - 'a' : 0;
        /* Ids that are in no order of ranks or names. */
        ranks[r] = (struct stepaf_split_rank){UINT64_MAX / 7 * (uint64_t)(5 - node), hosts[node]};
    }
    status = split.kind == STEPAF_SPLIT_NONE
                 ? stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT, "no split")
                 : stepaf_split_deal(&split, ranks, size, roles);
    stepaf_split_free(&split);
    return status;
}

static void expect_nodes(const char *split, const char *nodes, const char *expected)
{
    int size = (int)strlen(expected);
    uint8_t roles[SIZE_MAX_HERE + 1];
    char text[SIZE_MAX_HERE + 1];
    memset(roles, UNTOUCHED, sizeof roles);
    CU_ASSERT_EQUAL(split_up(split, nodes, size, roles), STEPAF_OK);
    show(roles, size, text);
    UNIT_STRING(text, expected);
    CU_ASSERT_EQUAL(roles[size], UNTOUCHED);
}

static void expect_roles(const char *split, const char *expected)
{
    expect_nodes(split, NULL, expected);
}

static int is_untouched(const uint8_t *roles)
{
    for (int i = 0; i < SIZE_MAX_HERE; i++)
        if (roles[i] != UNTOUCHED)
            return 0;
    return 1;
}

static void expect_nodes_refusal(const char *split, const char *nodes, int size, const char *reason)
{
    uint8_t roles[SIZE_MAX_HERE];
    memset(roles, UNTOUCHED, sizeof roles);
    CU_ASSERT_EQUAL(split_up(split, nodes, size, roles), STEPAF_ERR_SPLIT);
    CU_ASSERT(is_untouched(roles));
    UNIT_CONTAINS(stepaf_last_error()->text, reason);
}

static void expect_refusal(const char *split, int size, const char *reason)
{
    expect_nodes_refusal(split, NULL, size, reason);
}

static void good_strings(void)
{
    expect_roles("attn=1,ffn=1", "AF");
    expect_roles("attn=4,ffn=2", "AAAAFF");
    expect_roles("ffn=2,attn=4", "AAAAFF");
    expect_roles("attn=1,ffn=3", "AFFF");
    expect_roles("attn=2,ffn=2,interleave", "AFAF");
    expect_roles("interleave,ffn=2,attn=2", "AFAF");
    expect_roles("attn=4,ffn=2,interleave", "AAFAAF");
    expect_roles("attn=1,ffn=3,interleave", "AFFF");
    expect_roles("attn=3,ffn=1,interleave", "AAAF");
    expect_roles("attn=2,ffn=3,interleave", "AFAFF");
    expect_roles("attn=0002,ffn=01", "AAF");
}

static void the_side_left_out_takes_the_rest(void)
{
    expect_roles("attn=4", "AAAAFF");
    expect_roles("ffn=2", "AAAAFF");
    expect_roles("ffn=1", "AF");
    expect_roles("ffn=2,interleave", "AAFAAF");
    expect_roles("interleave,attn=2", "AFAFF");
    expect_refusal("attn=4", 4, "the job has 4 ranks, and none remain for FFN");
    expect_refusal("attn=5", 4, "none remain for FFN");
    expect_refusal("ffn=2", 2, "the job has 2 ranks, and none remain for attention");
    expect_refusal("ffn=16777216", 2, "none remain for attention");
}

static void counts_of_each_node(void)
{
    expect_nodes("attn=per-node:2,ffn=per-node:1", "aaabbb", "AAFAAF");
    expect_nodes("ffn=per-node:1,attn=per-node:2", "ababab", "AAAAFF");
    expect_nodes("attn=per-node:2,ffn=per-node:2,interleave", "aaaabbbb", "AFAFAFAF");
    expect_nodes("attn=per-node:2,ffn=per-node:2,interleave", "abababab", "AAFFAAFF");
    expect_nodes("attn=per-node:1,ffn=per-node:1", "ccaabb", "AFAFAF");
    expect_nodes("attn=per-node:6,ffn=per-node:2", "aaaaaaaa", "AAAAAAFF");
    expect_nodes("ffn=per-node:1", "aabbbcccc", "AFAAFAAAF");
    expect_nodes("attn=per-node:1", "aabbbcccc", "AFAFFAFFF");
    expect_nodes("ffn=per-node:2,interleave", "aaaabbb", "AFAFAFF");

    expect_nodes_refusal("attn=per-node:2,ffn=per-node:1", "aaabb", 5,
                         "node b has 2 ranks of the job and needs 3");
    expect_nodes_refusal("attn=per-node:2,ffn=per-node:1", "aabbb", 5, "node a has 2 ranks");
    expect_nodes_refusal("attn=per-node:2,ffn=per-node:1", "dccddcccc", 9, "node c has 6 ranks");
    expect_nodes_refusal("attn=per-node:2,ffn=per-node:1", "dbbbbd", 6, "node d has 2 ranks");
    expect_nodes_refusal("ffn=per-node:2", "aaabb", 5,
                         "node b has 2 ranks of the job, and none remain for attention");
    expect_nodes_refusal("attn=per-node:1", "aab", 3,
                         "node b has 1 ranks of the job, and none remain for FFN");
    expect_refusal("attn=per-node:2,ffn=1", 3, "one count is per node, but the other is not");
    expect_refusal("attn=2,ffn=per-node:1", 3, "one count is per node, but the other is not");
    expect_refusal("attn=per-node:0,ffn=per-node:2", 2, "a number from 1");
    expect_refusal("attn=per-node:,ffn=per-node:2", 2, "a number from 1");
    expect_refusal("attn=per-node,ffn=per-node:2", 2, "a number from 1");
    expect_refusal("attn=per-node:per-node:1,ffn=per-node:1", 2, "a number from 1");
    expect_refusal("attn=Per-Node:1,ffn=Per-Node:1", 2, "a number from 1");
}

/* No split is none, and takes no rank. */
static void an_empty_string_is_none(void)
{
    struct stepaf_split split;
    CU_ASSERT_EQUAL(stepaf_split_parse("", 3, &split), STEPAF_OK);
    CU_ASSERT_EQUAL(split.kind, STEPAF_SPLIT_NONE);
    CU_ASSERT_EQUAL(stepaf_split_map_digest(&split, 3), 0);
    stepaf_split_free(&split);
}

/* For all counts: as many as asked for, and no stretch from the start is more than one off its
 * share. */
static void interleaving_is_even(void)
{
    for (int attention = 1; attention <= 20; attention++) {
        for (int ffn = 1; ffn <= 20; ffn++) {
            int size = attention + ffn;
            uint8_t roles[SIZE_MAX_HERE];
            char split[64];
            int seen = 0;
            int uneven = 0;
            snprintf(split, sizeof split, "attn=%d,ffn=%d,interleave", attention, ffn);
            CU_ASSERT_EQUAL_FATAL(split_up(split, NULL, size, roles), STEPAF_OK);
            CU_ASSERT_EQUAL(roles[0], STEPAF_ATTENTION);
            for (int k = 1; k <= size; k++) {
                seen += roles[k - 1] == STEPAF_ATTENTION;
                uneven += abs(seen * size - k * attention) >= size;
            }
            CU_ASSERT_EQUAL(seen, attention);
            CU_ASSERT_EQUAL(uneven, 0);
        }
    }
}

static void bad_strings(void)
{
    expect_refusal("attn", 2, "the syntax is attn=N,ffn=M[,interleave]");
    expect_refusal(" ", 2, "or map=FILE");
    expect_refusal("interleave", 2, "attn= and ffn= are missing");
    expect_refusal("attn=1,ffn=1", 3, "1 + 1 ranks are not the job's 3");
    expect_refusal("attn=2,ffn=2", 3, "2 + 2 ranks are not the job's 3");
    expect_refusal("attn=0,ffn=2", 2, "a number from 1");
    expect_refusal("attn=2,ffn=0", 2, "a number from 1");
    expect_refusal("attn=,ffn=2", 2, "a number from 1");
    expect_refusal("attn=-1,ffn=3", 2, "a number from 1");
    expect_refusal("attn=1x,ffn=1", 2, "a number from 1");
    expect_refusal("attn= 1,ffn=1", 2, "a number from 1");
    expect_refusal("attn=4294967297,ffn=1", 2, "a number from 1");
    expect_refusal("attn=99999999999999999999,ffn=1", 2, "a number from 1");
    expect_refusal("attn=1,attn=1,ffn=1", 2, "occurs twice");
    expect_refusal("attn=1,ffn=1,interleave,interleave", 2, "occurs twice");
    expect_refusal("attn=1,ffn=1,", 2, "unknown");
    expect_refusal(",attn=1,ffn=1", 2, "unknown");
    expect_refusal("attn=1;ffn=1", 2, "a number from 1");
    expect_refusal("ATTN=1,FFN=1", 2, "unknown");
    expect_refusal("attention=1,ffn=1", 2, "unknown");
    expect_refusal("attn=1,ffn=1,shuffle", 2, "unknown");
    expect_refusal("attn=1,ffn=1,interleave=1", 2, "unknown");
}

static void long_strings_are_cut(void)
{
    char split[5000];
    memset(split, 'a', sizeof split);
    split[sizeof split - 1] = '\0';
    expect_refusal(split, 2, "aaa...");
    UNIT_CONTAINS(stepaf_last_error()->text, "the syntax is");
}

static stepaf_status_t parse_map(const char *text, int size, uint8_t *roles)
{
    return stepaf_split_parse_map(text, strlen(text), size, roles);
}

static void expect_map(const char *map, const char *expected)
{
    int size = (int)strlen(expected);
    uint8_t roles[SIZE_MAX_HERE];
    char text[SIZE_MAX_HERE + 1];
    CU_ASSERT_EQUAL(parse_map(map, size, roles), STEPAF_OK);
    show(roles, size, text);
    UNIT_STRING(text, expected);
}

static void expect_map_refusal(const char *map, int size, const char *reason)
{
    uint8_t roles[SIZE_MAX_HERE];
    memset(roles, UNTOUCHED, sizeof roles);
    CU_ASSERT_EQUAL(parse_map(map, size, roles), STEPAF_ERR_SPLIT);
    CU_ASSERT(is_untouched(roles));
    UNIT_CONTAINS(stepaf_last_error()->text, reason);
}

static void map_texts(void)
{
    expect_map("attention\nffn\n", "AF");
    expect_map("attn\nffn", "AF");
    expect_map("ffn\nattn\nffn\n", "FAF");
    expect_map("# all of them\n\n  attention  # first\n\tffn\r\n#end", "AF");

    expect_map_refusal("", 2, "the file has 0 ranks, and the job has 2");
    expect_map_refusal("# nothing", 2, "the file has 0 ranks");
    expect_map_refusal("attn\n", 2, "the file has 1 ranks, and the job has 2");
    expect_map_refusal("attn\nffn\nffn\n", 2, "line 3 is beyond the job's");
    expect_map_refusal("attn\nattn\n", 2, "no FFN rank");
    expect_map_refusal("ffn\nffn\n", 2, "no attention rank");
    expect_map_refusal("attn\nfnn\n", 2, "line 2 is \"fnn\"");
    expect_map_refusal("attn ffn\n", 2, "line 1");
    expect_map_refusal("Attention\nffn\n", 2, "line 1");
    expect_map_refusal("attn,ffn", 2, "line 1");

    uint8_t roles[2] = {UNTOUCHED, UNTOUCHED};
    static const char zeros[] = "attn\n\0ffn\n";
    CU_ASSERT_EQUAL(stepaf_split_parse_map(zeros, sizeof zeros - 1, 2, roles), STEPAF_ERR_SPLIT);
    CU_ASSERT_EQUAL(roles[0], UNTOUCHED);
}

static uint64_t map_digest(const char *text, int size)
{
    struct stepaf_split split;
    CU_ASSERT_EQUAL_FATAL(stepaf_split_parse(text, size, &split), STEPAF_OK);
    uint64_t digest = stepaf_split_map_digest(&split, size);
    stepaf_split_free(&split);
    return digest;
}

static void rewrite(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static void map_files(void)
{
    char directory[256];
    char path[300];
    char split[320];
    const char *base = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/stepaf-split-XXXXXX", base ? base : "/tmp");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/a,map=1", directory);
    snprintf(split, sizeof split, "map=%s", path);

    expect_refusal(split, 2, "cannot open");
    expect_refusal("map=", 2, "cannot open");
    rewrite(path, "ffn\nattention\nffn\n");
    expect_roles(split, "FAF");
    uint64_t digest = map_digest(split, 3);
    CU_ASSERT_NOT_EQUAL(digest, 0);
    rewrite(path, "# other words\nffn\nattn # the same roles\nffn");
    CU_ASSERT_EQUAL(map_digest(split, 3), digest);
    rewrite(path, "ffn\nffn\nattn\n");
    CU_ASSERT_NOT_EQUAL(map_digest(split, 3), digest);
    expect_refusal(split, 2, "line 3 is beyond");

    CU_ASSERT_EQUAL(truncate(path, 17 << 20), 0);
    expect_refusal(split, 2, "not a regular file of at most");
    unlink(path);
    CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
    expect_refusal(split, 2, "not a regular file");
    unlink(path);
    snprintf(split, sizeof split, "map=%s", directory);
    expect_refusal(split, 2, "not a regular file");
    rmdir(directory);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"good strings", good_strings},
        {"the side left out takes the rest", the_side_left_out_takes_the_rest},
        {"counts of each node", counts_of_each_node},
        {"an empty string is none", an_empty_string_is_none},
        {"interleaving is even", interleaving_is_even},
        {"bad strings", bad_strings},
        {"long strings are cut", long_strings_are_cut},
        {"map texts", map_texts},
        {"map files", map_files},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
