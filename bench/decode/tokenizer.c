/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 64 << 20, BYTES = 256, SPECIALS_MAX = 4096 };

/* A text that is one id. */
struct special {
    char *text;
    size_t bytes;
    int id;
};

struct tokenizer {
    int id_of_byte[BYTES];
    struct special *specials;
    size_t n_specials;
    int vocab;
    int *text_of_id;   /* 0: none; 1 + byte; 1 + BYTES + special */
    char bytes[BYTES]; /* bytes[b] is b, to point at */
};

/* The printable character that stands for each byte in a byte-level vocabulary: the byte itself
 * where it is a printable character of Latin-1, else the next one from U+0100 on. */
static unsigned stand_in(unsigned byte)
{
    unsigned next = 256;
    for (unsigned b = 0; b < BYTES; b++) {
        int printable = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
        if (b == byte)
            return printable ? b : next;
        next += !printable;
    }
    return 0;
}

static void encode_utf8(unsigned character, char text_p[3])
{
    if (character < 0x80) {
        text_p[0] = (char)character;
        text_p[1] = '\0';
        return;
    }
    text_p[0] = (char)(0xc0 | character >> 6);
    text_p[1] = (char)(0x80 | (character & 0x3f));
    text_p[2] = '\0';
}

static const char *text_at(const json_t *root, const char *outer, const char *inner)
{
    return json_string_value(json_object_get(json_object_get(root, outer), inner));
}

static int is_true(const json_t *root, const char *outer, const char *inner)
{
    return json_is_true(json_object_get(json_object_get(root, outer), inner));
}

/* Return why this tokenizer is more than ids for bytes; NULL if it is not. */
static const char *find_obstacle(const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *normalizer = json_object_get(root, "normalizer");
    const char *type = text_at(root, "model", "type");
    const char *before = text_at(root, "pre_tokenizer", "type");
    if (!type || strcmp(type, "BPE") != 0)
        return "its model is not BPE";
    if (json_array_size(json_object_get(model, "merges")) != 0)
        return "the tokenizer has merges";
    if (normalizer && !json_is_null(normalizer))
        return "the tokenizer normalizes text";
    if (!before || strcmp(before, "ByteLevel") != 0)
        return "the tokenizer does not split text into bytes";
    if (is_true(root, "pre_tokenizer", "add_prefix_space"))
        return "the tokenizer puts a space before text";
    return NULL;
}

static int take_id(struct tokenizer *tokenizer, const json_t *value, int text, const char *what,
                   int *id_p, struct reason *reason)
{
    int64_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= tokenizer->vocab)
        return reason_bad_input(reason, "%s: an id is not in 0..%d", what, tokenizer->vocab - 1);
    if (tokenizer->text_of_id[id])
        return reason_bad_input(reason, "%s: id %d stands for two texts", what, (int)id);
    tokenizer->text_of_id[id] = text;
    *id_p = (int)id;
    return 0;
}

static int take_bytes(struct tokenizer *tokenizer, const json_t *vocab, const char *what,
                      struct reason *reason)
{
    for (unsigned b = 0; b < BYTES; b++) {
        char key[3];
        encode_utf8(stand_in(b), key);
        if (take_id(tokenizer, json_object_get(vocab, key), (int)(1 + b), what,
                    &tokenizer->id_of_byte[b], reason))
            return -1;
        tokenizer->bytes[b] = (char)b;
    }
    return 0;
}

static int take_specials(struct tokenizer *tokenizer, const json_t *added, const char *what,
                         struct reason *reason)
{
    size_t n = json_array_size(added);
    if (n > SPECIALS_MAX)
        return reason_bad_input(reason, "%s: more than %d added_tokens", what, SPECIALS_MAX);
    tokenizer->specials = calloc(n + 1, sizeof(tokenizer->specials[0]));
    if (!tokenizer->specials)
        return reason_no_memory(reason);
    for (size_t i = 0; i < n; i++) {
        const json_t *token = json_array_get(added, i);
        const char *content = json_string_value(json_object_get(token, "content"));
        struct special *special = &tokenizer->specials[i];
        if (!content || !*content)
            return reason_bad_input(reason, "%s: an added token has no content", what);
        if (take_id(tokenizer, json_object_get(token, "id"), (int)(1 + BYTES + i), what,
                    &special->id, reason))
            return -1;
        special->text = strdup(content);
        if (!special->text)
            return reason_no_memory(reason);
        special->bytes = strlen(content);
        tokenizer->n_specials++;
    }
    return 0;
}

static int refuse(const char *obstacle, const char *what, char **why_not, struct reason *reason)
{
    char text[PATH_MAX + 128];
    snprintf(text, sizeof(text), "%s is not a plain byte-level tokenizer: %s", what, obstacle);
    *why_not = strdup(text);
    return *why_not ? 0 : reason_no_memory(reason);
}

int tokenizer_parse(const json_t *root, const char *what, int vocab, struct tokenizer **tokenizer_p,
                    char **why_not, struct reason *reason)
{
    *tokenizer_p = NULL;
    *why_not = NULL;
    const char *obstacle = find_obstacle(root);
    const json_t *ids = json_object_get(json_object_get(root, "model"), "vocab");
    if (!obstacle && json_object_size(ids) != BYTES)
        obstacle = "its vocabulary is not the 256 bytes";
    if (obstacle)
        return refuse(obstacle, what, why_not, reason);
    struct tokenizer *tokenizer = calloc(1, sizeof(*tokenizer));
    if (!tokenizer || !(tokenizer->text_of_id = calloc((size_t)vocab, sizeof(int)))) {
        free(tokenizer);
        return reason_no_memory(reason);
    }
    tokenizer->vocab = vocab;
    if (take_bytes(tokenizer, ids, what, reason) ||
        take_specials(tokenizer, json_object_get(root, "added_tokens"), what, reason)) {
        tokenizer_free(tokenizer);
        return -1;
    }
    *tokenizer_p = tokenizer;
    return 0;
}

int tokenizer_load(const char *dir, int vocab, struct tokenizer **tokenizer_p, char **why_not,
                   struct reason *reason)
{
    char path[PATH_MAX];
    json_t *root;
    *tokenizer_p = NULL;
    *why_not = NULL;
    if (snprintf(path, sizeof(path), "%s/tokenizer.json", dir) >= (int)sizeof(path))
        return reason_bad_input(reason, "%s: path too long", dir);
    if (access(path, F_OK))
        return refuse("there is no such file", path, why_not, reason);
    if (json_object_load(path, FILE_MAX_BYTES, &root, reason))
        return -1;
    int result = tokenizer_parse(root, path, vocab, tokenizer_p, why_not, reason);
    json_decref(root);
    return result;
}

void tokenizer_free(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    for (size_t i = 0; i < tokenizer->n_specials; i++)
        free(tokenizer->specials[i].text);
    free(tokenizer->specials);
    free(tokenizer->text_of_id);
    free(tokenizer);
}

/* Find the longest special text at the beginning of @a text. */
static const struct special *find_special(const struct tokenizer *tokenizer, const char *text,
                                          size_t bytes)
{
    const struct special *found = NULL;
    for (size_t i = 0; i < tokenizer->n_specials; i++) {
        const struct special *special = &tokenizer->specials[i];
        if (special->bytes <= bytes && memcmp(special->text, text, special->bytes) == 0 &&
            (!found || special->bytes > found->bytes))
            found = special;
    }
    return found;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, int **ids_p,
                     size_t *count_p, struct reason *reason)
{
    size_t count = 0;
    int *ids = malloc((bytes + 1) * sizeof(int));
    if (!ids)
        return reason_no_memory(reason);
    for (size_t at = 0; at < bytes;) {
        const struct special *special = find_special(tokenizer, text + at, bytes - at);
        ids[count++] = special ? special->id : tokenizer->id_of_byte[(unsigned char)text[at]];
        at += special ? special->bytes : 1;
    }
    *ids_p = ids;
    *count_p = count;
    return 0;
}

size_t tokenizer_decode(const struct tokenizer *tokenizer, int id, const char **text_p)
{
    int text = id >= 0 && id < tokenizer->vocab ? tokenizer->text_of_id[id] : 0;
    if (text == 0)
        return 0;
    if (text <= BYTES) {
        *text_p = &tokenizer->bytes[text - 1];
        return 1;
    }
    *text_p = tokenizer->specials[text - 1 - BYTES].text;
    return tokenizer->specials[text - 1 - BYTES].bytes;
}
