/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/split.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum {
    COUNT_MAX = 1 << 24, /* ranks; keeps sums far from overflow */
    SHOWN_MAX = 64       /* of a bad split in the sentence about it */
};

/* A split string taken apart. Counts are -1 until seen. */
struct split {
    int attention;
    int ffn;
    int interleave;
};

/* Every refusal of a split string says what is wrong, quotes it and gives the syntax. */
__attribute__((format(printf, 2, 3))) static stepaf_status_t refuse(const char *split,
                                                                    const char *format, ...)
{
    char reason[128];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
                            "split \"%.*s%s\": %s; the syntax is attn=N,ffn=M[,interleave] or "
                            "map=FILE",
                            SHOWN_MAX, split, strlen(split) > SHOWN_MAX ? "..." : "", reason);
}

static int word_is(const char *word, size_t bytes, const char *expected)
{
    return strlen(expected) == bytes && memcmp(word, expected, bytes) == 0;
}

/* Digits only. Return -1 if it is no number or too large. */
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

static stepaf_status_t parse_word(const char *split, const char *word, size_t bytes,
                                  struct split *parsed)
{
    const char *equals = memchr(word, '=', bytes);
    int *count = NULL;

    if (!equals) {
        if (!word_is(word, bytes, "interleave") || parsed->interleave)
            return refuse(split, "\"%.*s\" is unknown or there twice",
                          (int)(bytes < SHOWN_MAX ? bytes : SHOWN_MAX), word);
        parsed->interleave = 1;
        return STEPAF_OK;
    }
    size_t name_bytes = (size_t)(equals - word);
    if (word_is(word, name_bytes, "attn"))
        count = &parsed->attention;
    else if (word_is(word, name_bytes, "ffn"))
        count = &parsed->ffn;
    if (!count || *count >= 0)
        return refuse(split, "\"%.*s=\" is unknown or there twice",
                      (int)(name_bytes < SHOWN_MAX ? name_bytes : SHOWN_MAX), word);
    *count = parse_count(equals + 1, bytes - name_bytes - 1);
    if (*count < 1)
        return refuse(split, "each count has to be a number from 1 to %d", COUNT_MAX);
    return STEPAF_OK;
}

static stepaf_status_t parse_words(const char *split, struct split *parsed)
{
    const char *word = split;
    for (;;) {
        size_t bytes = strcspn(word, ",");
        stepaf_status_t status = parse_word(split, word, bytes, parsed);
        if (status != STEPAF_OK)
            return status;
        if (word[bytes] == '\0')
            return STEPAF_OK;
        word += bytes + 1;
    }
}

/* Interleaved, the first k ranks hold the share of k that is due to attention, rounded up, for
 * every k: as even as it gets, and attention comes first. */
static void deal(const struct split *parsed, int size, uint8_t *roles_p)
{
    int64_t dealt = 0;
    for (int rank = 0; rank < size; rank++) {
        int64_t due = parsed->attention;
        if (parsed->interleave)
            due = ((int64_t)(rank + 1) * parsed->attention + size - 1) / size;
        roles_p[rank] = dealt < due ? STEPAF_ATTENTION : STEPAF_FFN;
        dealt += dealt < due;
    }
}

static stepaf_status_t parse_counts(const char *split, int size, uint8_t *roles_p)
{
    struct split parsed = {.attention = -1, .ffn = -1};
    stepaf_status_t status = parse_words(split, &parsed);
    if (status != STEPAF_OK)
        return status;
    if (parsed.attention < 0 || parsed.ffn < 0)
        return refuse(split, "%s is missing", parsed.attention < 0 ? "attn=" : "ffn=");
    if (parsed.attention + parsed.ffn != size)
        return refuse(split, "%d + %d ranks are not the job's %d", parsed.attention, parsed.ffn,
                      size);
    deal(&parsed, size, roles_p);
    return STEPAF_OK;
}

stepaf_status_t stepaf_split_parse(const char *split, int size, uint8_t *roles_p)
{
    static const char map[] = "map=";
    if (strncmp(split, map, sizeof map - 1) == 0)
        return stepaf_split_parse_map_file(split + sizeof map - 1, size, roles_p);
    return parse_counts(split, size, roles_p);
}
