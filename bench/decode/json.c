/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int json_object_parse(const char *text, size_t bytes, const char *what, json_t **root_p,
                      struct reason *reason)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return reason_bad_input(reason, "%s: not JSON: %s in line %d", what, error.text,
                                error.line);
    if (!json_is_object(root)) {
        json_decref(root);
        return reason_bad_input(reason, "%s: not a JSON object", what);
    }
    *root_p = root;
    return 0;
}

int json_object_load(const char *path, size_t max_bytes, json_t **root_p, struct reason *reason)
{
    int result = -1;
    FILE *file = fopen(path, "rb");
    if (!file)
        return reason_bad_input(reason, "%s: %s", path, strerror(errno));
    size_t capacity = 4096;
    size_t bytes = 0;
    char *text = malloc(capacity);
    while (text) {
        bytes += fread(text + bytes, 1, capacity - bytes, file);
        if (bytes < capacity)
            break;
        if (capacity > max_bytes) {
            reason_bad_input(reason, "%s: larger than %zu bytes", path, max_bytes);
            goto err_free;
        }
        capacity *= 2;
        char *larger = realloc(text, capacity);
        if (!larger)
            free(text);
        text = larger;
    }
    if (!text)
        reason_no_memory(reason);
    else if (ferror(file))
        reason_bad_input(reason, "%s: cannot be read", path);
    else
        result = json_object_parse(text, bytes, path, root_p, reason);
err_free:
    free(text);
    fclose(file);
    return result;
}

/* The field, or NULL where it is absent or null. */
static const json_t *look_up(struct json_field field)
{
    const json_t *value = json_object_get(field.object, field.name);
    return json_is_null(value) ? NULL : value;
}

static int absent(struct json_field field, struct reason *reason)
{
    if (field.optional)
        return 0;
    return reason_bad_input(reason, "%s: no \"%s\"", field.what, field.name);
}

static int out_of_place(struct json_field field, const char *wanted, struct reason *reason)
{
    return reason_bad_input(reason, "%s: \"%s\" is not %s", field.what, field.name, wanted);
}

int json_get_int(struct json_field field, int64_t min, int64_t max, int64_t fallback,
                 int64_t *value_p, struct reason *reason)
{
    const json_t *value = look_up(field);
    if (!value) {
        if (absent(field, reason))
            return -1;
        *value_p = fallback;
        return 0;
    }
    if (!json_is_integer(value))
        return out_of_place(field, "a whole number", reason);
    int64_t number = json_integer_value(value);
    if (number < min || number > max)
        return reason_bad_input(reason, "%s: \"%s\" is %lld, which is not in %lld..%lld",
                                field.what, field.name, (long long)number, (long long)min,
                                (long long)max);
    *value_p = number;
    return 0;
}

int json_get_number(struct json_field field, double min, double max, double fallback,
                    double *value_p, struct reason *reason)
{
    const json_t *value = look_up(field);
    if (!value) {
        if (absent(field, reason))
            return -1;
        *value_p = fallback;
        return 0;
    }
    if (!json_is_number(value))
        return out_of_place(field, "a number", reason);
    double number = json_number_value(value);
    if (!(number >= min && number <= max))
        return reason_bad_input(reason, "%s: \"%s\" is %g, which is not in %g..%g", field.what,
                                field.name, number, min, max);
    *value_p = number;
    return 0;
}

int json_get_bool(struct json_field field, int fallback, int *value_p, struct reason *reason)
{
    const json_t *value = look_up(field);
    if (!value) {
        if (absent(field, reason))
            return -1;
        *value_p = fallback;
        return 0;
    }
    if (!json_is_boolean(value))
        return out_of_place(field, "true or false", reason);
    *value_p = json_is_true(value);
    return 0;
}

int json_get_text(struct json_field field, const char *fallback, const char **value_p,
                  struct reason *reason)
{
    const json_t *value = look_up(field);
    if (!value) {
        if (absent(field, reason))
            return -1;
        *value_p = fallback;
        return 0;
    }
    if (!json_is_string(value))
        return out_of_place(field, "text", reason);
    *value_p = json_string_value(value);
    return 0;
}

/* Check the array and make room for its @a size-byte elements. */
static int begin_array(struct json_field field, size_t max_count, size_t size,
                       const json_t **array_p, void **values_p, struct reason *reason)
{
    const json_t *array = look_up(field);
    *array_p = array;
    *values_p = NULL;
    if (!array)
        return absent(field, reason);
    if (!json_is_array(array))
        return out_of_place(field, "an array", reason);
    if (json_array_size(array) > max_count)
        return reason_bad_input(reason, "%s: \"%s\" has %zu elements, more than %zu", field.what,
                                field.name, json_array_size(array), max_count);
    *values_p = calloc(json_array_size(array) + 1, size);
    return *values_p ? 0 : reason_no_memory(reason);
}

int json_get_ints(struct json_field field, int64_t min, int64_t max, size_t max_count,
                  int **values_p, size_t *count_p, struct reason *reason)
{
    const json_t *array;
    void *block;
    if (begin_array(field, max_count, sizeof(int), &array, &block, reason))
        return -1;
    int *values = block;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *element = json_array_get(array, i);
        int64_t number = json_integer_value(element);
        if (!json_is_integer(element) || number < min || number > max) {
            free(values);
            return reason_bad_input(reason, "%s: \"%s\" has an element that is not in %lld..%lld",
                                    field.what, field.name, (long long)min, (long long)max);
        }
        values[i] = (int)number;
    }
    *values_p = values;
    *count_p = json_array_size(array);
    return 0;
}

int json_get_floats(struct json_field field, size_t max_count, float **values_p, size_t *count_p,
                    struct reason *reason)
{
    const json_t *array;
    void *block;
    if (begin_array(field, max_count, sizeof(float), &array, &block, reason))
        return -1;
    float *values = block;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *element = json_array_get(array, i);
        values[i] = (float)json_number_value(element);
        if (!json_is_number(element) || !isfinite(values[i])) {
            free(values);
            return out_of_place(field, "an array of finite numbers", reason);
        }
    }
    *values_p = values;
    *count_p = json_array_size(array);
    return 0;
}
