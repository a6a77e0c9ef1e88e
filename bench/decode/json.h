/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted JSON: every field is read with a type and a range. */
#ifndef DECODE_JSON_H
#define DECODE_JSON_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "reason.h"

/* Read @a path, at most @a max_bytes of it, as one JSON object. The caller releases *root_p with
 * json_decref. */
int json_object_load(const char *path, size_t max_bytes, json_t **root_p, struct reason *reason);

/* Parse @a bytes bytes as one JSON object; @a what names them in messages. */
int json_object_parse(const char *text, size_t bytes, const char *what, json_t **root_p,
                      struct reason *reason);

/* Get fields of @a object, which messages call @a what. For an absent or null field *value_p =
 * fallback if @a optional; otherwise that is an error. *value_p is set only on success. */
struct json_field {
    const json_t *object;
    const char *what;
    const char *name;
    int optional;
};

int json_get_int(struct json_field field, int64_t min, int64_t max, int64_t fallback,
                 int64_t *value_p, struct reason *reason);
int json_get_number(struct json_field field, double min, double max, double fallback,
                    double *value_p, struct reason *reason);
int json_get_bool(struct json_field field, int fallback, int *value_p, struct reason *reason);

/* Get a text, which belongs to the object. */
int json_get_text(struct json_field field, const char *fallback, const char **value_p,
                  struct reason *reason);

/* Get an array of numbers in [min, max], *values_p for free(). At most @a max_count; an absent
 * optional array is NULL with count 0. */
int json_get_ints(struct json_field field, int64_t min, int64_t max, size_t max_count,
                  int **values_p, size_t *count_p, struct reason *reason);
int json_get_floats(struct json_field field, size_t max_count, float **values_p, size_t *count_p,
                    struct reason *reason);

#endif
