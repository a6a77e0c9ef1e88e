/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of a split string. */
#include "boot/split.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"

enum {
    COUNT_MAX = 1 << 24, /* ranks; keeps sums far from overflow */
    SHOWN_MAX = 64       /* of a bad split in the sentence about it */
};

static const char per_node[] = "per-node:";

stepaf_status_t stepaf_split_refuse(const char *text, const char *format, ...)
{
    char reason[128];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
                            "split \"%.*s%s\": %s; the syntax is attn=N,ffn=M[,interleave], "
                            "one side may be left out, N is a count or per-node:COUNT; or map=FILE",
                            SHOWN_MAX, text, strlen(text) > SHOWN_MAX ? "..." : "", reason);
}

static int shown(size_t bytes)
{
    return (int)(bytes < SHOWN_MAX ? bytes : SHOWN_MAX);
}

/* Parse digits only. Returns -1 if @a text is no number or too large. */
static int parse_count(const char *text, size_t bytes)
{
    int count = 0;
    if (bytes == 0)
        return -1;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        count = count * 10 + (text[i] - '0');
        if (count > COUNT_MAX)
            return -1;
    }
    return count;
}

/* Parse the value of "attn=" or "ffn=". */
static stepaf_status_t parse_value(const char *value, size_t bytes, struct stepaf_split *split,
                                   int *count_p)
{
    size_t prefix = sizeof per_node - 1;
    enum stepaf_split_kind kind = STEPAF_SPLIT_WORLD;

    if (bytes >= prefix && memcmp(value, per_node, prefix) == 0) {
        kind = STEPAF_SPLIT_NODES;
        value += prefix;
        bytes -= prefix;
    }
    int count = parse_count(value, bytes);
    if (count < 1)
        return stepaf_split_refuse(split->text, "each count must be a number from 1 to %d",
                                   COUNT_MAX);
    if (split->kind != STEPAF_SPLIT_NONE && split->kind != kind)
        return stepaf_split_refuse(split->text, "one count is per node, but the other is not");
    split->kind = kind;
    *count_p = count;
    return STEPAF_OK;
}

static stepaf_status_t parse_word(const char *word, size_t bytes, struct stepaf_split *split)
{
    const char *equals = memchr(word, '=', bytes);
    int *count = NULL;

    if (!equals) {
        if (!stepaf_split_word_is(word, bytes, "interleave") || split->interleave)
            return stepaf_split_refuse(split->text, "\"%.*s\" is unknown or occurs twice",
                                       shown(bytes), word);
        split->interleave = true;
        return STEPAF_OK;
    }
    size_t name_bytes = (size_t)(equals - word);
    if (stepaf_split_word_is(word, name_bytes, "attn"))
        count = &split->attention;
    else if (stepaf_split_word_is(word, name_bytes, "ffn"))
        count = &split->ffn;
    if (!count || *count)
        return stepaf_split_refuse(split->text, "\"%.*s=\" is unknown or occurs twice",
                                   shown(name_bytes), word);
    return parse_value(equals + 1, bytes - name_bytes - 1, split, count);
}

static stepaf_status_t parse_words(struct stepaf_split *split)
{
    const char *word = split->text;
    for (;;) {
        size_t bytes = strcspn(word, ",");
        stepaf_status_t status = parse_word(word, bytes, split);
        if (status != STEPAF_OK)
            return status;
        if (word[bytes] == '\0')
            break;
        word += bytes + 1;
    }
    if (split->kind == STEPAF_SPLIT_NONE)
        return stepaf_split_refuse(split->text, "attn= and ffn= are missing");
    return STEPAF_OK;
}

static stepaf_status_t parse_map(const char *path, int size, struct stepaf_split *split)
{
    split->kind = STEPAF_SPLIT_MAP;
    split->map = malloc((size_t)size);
    if (!split->map)
        return stepaf_error_no_memory(STEPAF_PHASE_INIT);
    return stepaf_split_parse_map_file(path, size, split->map);
}

stepaf_status_t stepaf_split_parse(const char *text, int size, struct stepaf_split *split_p)
{
    static const char map[] = "map=";
    struct stepaf_split split = {.text = text};
    stepaf_status_t status = STEPAF_OK;

    if (strncmp(text, map, sizeof map - 1) == 0)
        status = parse_map(text + sizeof map - 1, size, &split);
    else if (text[0])
        status = parse_words(&split);
    if (status)
        stepaf_split_free(&split);
    else
        *split_p = split;
    return status;
}

uint64_t stepaf_split_map_digest(const struct stepaf_split *split, int size)
{
    uint64_t digest;

    if (!split->map)
        return 0;
    digest = stepaf_hash(STEPAF_HASH_START, split->map, (size_t)size);
    return digest ? digest : 1;
}

void stepaf_split_free(struct stepaf_split *split)
{
    free(split->map);
    split->map = NULL;
}
