/* SPDX-License-Identifier: Apache-2.0 */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

enum {
    LENGTH_BYTES = 8,
    HEADER_MAX_BYTES = 100000000 /* the format's own limit */
};

static const struct {
    const char *name;
    unsigned bytes;
} dtypes[SAFETENSORS_DTYPE_COUNT] = {
#define SAFETENSORS_DTYPE_ROW(name_, bytes_) {#name_, bytes_},
    SAFETENSORS_DTYPE_MAP(SAFETENSORS_DTYPE_ROW)
#undef SAFETENSORS_DTYPE_ROW
};

/* The state of the parser. */
struct parse {
    const char *what;
    uint64_t data_begin; /* where the data starts in the file */
    uint64_t data_bytes;
    struct reason *reason;
};

static int read_length(const uint8_t *file, uint64_t bytes, const char *what, uint64_t *length_p,
                       struct reason *reason)
{
    uint64_t length = 0;
    if (bytes < LENGTH_BYTES)
        return reason_bad_input(reason, "%s: truncated: only %llu bytes", what,
                                (unsigned long long)bytes);
    for (int i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)file[i] << (8 * i);
    if (length > bytes - LENGTH_BYTES)
        return reason_bad_input(reason,
                                "%s: header length %llu reaches beyond the file's %llu bytes", what,
                                (unsigned long long)length, (unsigned long long)bytes);
    if (length > HEADER_MAX_BYTES)
        return reason_bad_input(reason, "%s: header length %llu is above the limit of %d", what,
                                (unsigned long long)length, HEADER_MAX_BYTES);
    *length_p = length;
    return 0;
}

static int parse_dtype(const struct parse *parse, const json_t *value,
                       struct safetensors_entry *entry)
{
    const char *text = json_string_value(value);
    for (int i = 0; text && i < SAFETENSORS_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, text) == 0) {
            entry->dtype = (enum safetensors_dtype)i;
            return 0;
        }
    }
    return reason_bad_input(parse->reason, "%s: tensor \"%s\" has an unknown dtype \"%s\"",
                            parse->what, entry->name, text ? text : "");
}

/* Read the shape, and in *bytes_p its size. */
static int parse_shape(const struct parse *parse, const json_t *array,
                       struct safetensors_entry *entry, uint64_t *bytes_p)
{
    uint64_t bytes = dtypes[entry->dtype].bytes;
    if (!json_is_array(array) || json_array_size(array) > SAFETENSORS_MAX_DIMS)
        return reason_bad_input(parse->reason, "%s: tensor \"%s\" has no shape of up to %d sizes",
                                parse->what, entry->name, SAFETENSORS_MAX_DIMS);
    entry->ndim = (int)json_array_size(array);
    for (int i = 0; i < entry->ndim; i++) {
        const json_t *size = json_array_get(array, (size_t)i);
        entry->shape[i] = json_integer_value(size);
        if (!json_is_integer(size) || entry->shape[i] < 0 ||
            __builtin_mul_overflow(bytes, (uint64_t)entry->shape[i], &bytes))
            return reason_bad_input(parse->reason, "%s: tensor \"%s\" has an impossible shape",
                                    parse->what, entry->name);
    }
    *bytes_p = bytes;
    return 0;
}

static int parse_offsets(const struct parse *parse, const json_t *array, uint64_t bytes,
                         struct safetensors_entry *entry)
{
    const json_t *first = json_array_get(array, 0);
    const json_t *second = json_array_get(array, 1);
    if (json_array_size(array) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return reason_bad_input(parse->reason, "%s: tensor \"%s\" has no two data_offsets",
                                parse->what, entry->name);
    int64_t begin = json_integer_value(first);
    int64_t end = json_integer_value(second);
    if (begin < 0 || end < begin || (uint64_t)end > parse->data_bytes)
        return reason_bad_input(
            parse->reason,
            "%s: tensor \"%s\" has offsets %lld..%lld, out of range of the %llu bytes of data",
            parse->what, entry->name, (long long)begin, (long long)end,
            (unsigned long long)parse->data_bytes);
    if ((uint64_t)(end - begin) != bytes)
        return reason_bad_input(parse->reason,
                                "%s: tensor \"%s\" has %lld bytes, but its dtype and shape take "
                                "%llu",
                                parse->what, entry->name, (long long)(end - begin),
                                (unsigned long long)bytes);
    entry->begin = parse->data_begin + (uint64_t)begin;
    entry->end = parse->data_begin + (uint64_t)end;
    return 0;
}

static int parse_entries(const struct parse *parse, struct safetensors *st)
{
    const char *name;
    json_t *value;
    json_object_foreach(st->header, name, value)
    {
        uint64_t bytes = 0;
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct safetensors_entry *entry = &st->entries[st->count];
        entry->name = name;
        if (parse_dtype(parse, json_object_get(value, "dtype"), entry) ||
            parse_shape(parse, json_object_get(value, "shape"), entry, &bytes) ||
            parse_offsets(parse, json_object_get(value, "data_offsets"), bytes, entry))
            return -1;
        st->count++;
    }
    return 0;
}

static int compare_offsets(const void *left, const void *right)
{
    const struct safetensors_entry *a = left;
    const struct safetensors_entry *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return 0;
}

static int compare_names(const void *left, const void *right)
{
    const struct safetensors_entry *a = left;
    const struct safetensors_entry *b = right;
    return strcmp(a->name, b->name);
}

/* Extents in order must follow each other without overlap or gap. */
static int check_extents(const struct parse *parse, struct safetensors *st)
{
    uint64_t reached = parse->data_begin;
    qsort(st->entries, st->count, sizeof(st->entries[0]), compare_offsets);
    for (size_t i = 0; i < st->count; i++) {
        const struct safetensors_entry *entry = &st->entries[i];
        if (entry->begin < reached)
            return reason_bad_input(parse->reason, "%s: tensors \"%s\" and \"%s\" overlap",
                                    parse->what, st->entries[i - 1].name, entry->name);
        if (entry->begin > reached)
            return reason_bad_input(parse->reason,
                                    "%s: %llu bytes before tensor \"%s\" belong to "
                                    "no tensor",
                                    parse->what, (unsigned long long)(entry->begin - reached),
                                    entry->name);
        reached = entry->end;
    }
    if (reached != parse->data_begin + parse->data_bytes)
        return reason_bad_input(parse->reason, "%s: data has %llu bytes, but its tensors %llu",
                                parse->what, (unsigned long long)parse->data_bytes,
                                (unsigned long long)(reached - parse->data_begin));
    return 0;
}

int safetensors_parse(const uint8_t *file, uint64_t bytes, const char *what,
                      struct safetensors *st_p, struct reason *reason)
{
    uint64_t length = 0;
    if (read_length(file, bytes, what, &length, reason))
        return -1;
    struct parse parse = {what, LENGTH_BYTES + length, bytes - LENGTH_BYTES - length, reason};
    struct safetensors st = {0};
    if (json_object_parse((const char *)file + LENGTH_BYTES, (size_t)length, what, &st.header,
                          reason))
        return -1;
    st.entries = calloc(json_object_size(st.header) + 1, sizeof(st.entries[0]));
    if (!st.entries) {
        reason_no_memory(reason);
        goto err_free;
    }
    if (parse_entries(&parse, &st) || check_extents(&parse, &st))
        goto err_free;
    qsort(st.entries, st.count, sizeof(st.entries[0]), compare_names);
    *st_p = st;
    return 0;

err_free:
    safetensors_free(&st);
    return -1;
}

void safetensors_free(struct safetensors *st)
{
    free(st->entries);
    json_decref(st->header);
    *st = (struct safetensors){0};
}

const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name)
{
    struct safetensors_entry key = {.name = name};
    if (!st->count)
        return NULL;
    return bsearch(&key, st->entries, st->count, sizeof(st->entries[0]), compare_names);
}

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
    return dtype < SAFETENSORS_DTYPE_COUNT ? dtypes[dtype].name : "?";
}
