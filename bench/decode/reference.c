/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "math_ops.h"

enum { FILE_MAX_BYTES = 256 << 20, REFERENCES_MAX = 65536, IDS_MAX = 1 << 20 };

struct source {
    const char *path;
    const struct model_config *config;
    struct reason *reason;
};

static int get_ids(const struct source *source, const json_t *object, const char *what,
                   const char *name, int **ids_p, int *count_p)
{
    size_t count = 0;
    if (json_get_ints((struct json_field){object, what, name, 0}, 0, source->config->vocab - 1,
                      IDS_MAX, ids_p, &count, source->reason))
        return -1;
    *count_p = (int)count;
    if (count == 0)
        return reason_bad_input(source->reason, "%s: \"%s\" is empty", what, name);
    return 0;
}

/* An array that must have exactly @a count numbers. */
static int get_exactly(const struct source *source, const json_t *object, const char *what,
                       const char *name, size_t count, float **values_p)
{
    size_t found = 0;
    if (json_get_floats((struct json_field){object, what, name, 0}, count, values_p, &found,
                        source->reason))
        return -1;
    if (found != count)
        return reason_bad_input(source->reason, "%s: \"%s\" has %zu elements; %zu expected", what,
                                name, found, count);
    return 0;
}

static int compare_descending(const void *left, const void *right)
{
    float a = *(const float *)left;
    float b = *(const float *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* How far the last chosen expert's probability is above the next one's. */
static float find_gap(float *logits, int experts, int chosen)
{
    if (chosen == experts)
        return 1.0f;
    math_softmax(logits, experts, 1.0f);
    qsort(logits, (size_t)experts, sizeof(float), compare_descending);
    return logits[chosen - 1] - logits[chosen];
}

static int get_router_layer(const struct source *source, const json_t *object, const char *what,
                            struct reference *reference)
{
    const struct model_config *config = source->config;
    size_t chosen = (size_t)config->experts_chosen;
    int64_t layer = 0;
    int *experts = NULL;
    size_t count = 0;
    float *weights = NULL;
    float *logits = NULL;
    int result = -1;
    if (json_get_int((struct json_field){object, what, "layer", 0}, 0, config->layers - 1, 0,
                     &layer, source->reason) ||
        json_get_ints((struct json_field){object, what, "experts", 0}, 0, config->experts - 1,
                      chosen, &experts, &count, source->reason) ||
        get_exactly(source, object, what, "weights", chosen, &weights) ||
        get_exactly(source, object, what, "router_logits", (size_t)config->experts, &logits))
        goto err_free;
    if (count != chosen) {
        reason_bad_input(source->reason, "%s: \"experts\" has %zu elements; %zu expected", what,
                         count, chosen);
        goto err_free;
    }
    memcpy(reference->experts + (size_t)layer * chosen, experts, chosen * sizeof(int));
    memcpy(reference->weights + (size_t)layer * chosen, weights, chosen * sizeof(float));
    reference->gaps[layer] = find_gap(logits, config->experts, config->experts_chosen);
    result = 0;
err_free:
    free(experts);
    free(weights);
    free(logits);
    return result;
}

static int get_router(const struct source *source, const json_t *array, const char *what,
                      struct reference *reference)
{
    size_t layers = (size_t)source->config->layers;
    size_t records = layers * (size_t)source->config->experts_chosen;
    if (!array || source->config->experts == 0)
        return 0;
    if ((int)json_array_size(array) != model_config_sparse_layers(source->config))
        return reason_bad_input(source->reason, "%s: not one router record for each sparse layer",
                                what);
    reference->experts = calloc(records, sizeof(int32_t));
    reference->weights = calloc(records, sizeof(float));
    reference->gaps = calloc(layers, sizeof(float));
    if (!reference->experts || !reference->weights || !reference->gaps)
        return reason_no_memory(source->reason);
    for (size_t i = 0; i < json_array_size(array); i++)
        if (get_router_layer(source, json_array_get(array, i), what, reference))
            return -1;
    return 0;
}

static int get_reference(const struct source *source, const json_t *object, int index,
                         struct reference *reference)
{
    char what[512];
    const char *name = NULL;
    snprintf(what, sizeof(what), "%s: reference %d", source->path, index);
    if (!json_is_object(object))
        return reason_bad_input(source->reason, "%s: not an object", what);
    if (json_get_text((struct json_field){object, what, "name", 1}, "", &name, source->reason))
        return -1;
    reference->name = strdup(name);
    if (!reference->name)
        return reason_no_memory(source->reason);
    if (get_ids(source, object, what, "prompt_ids", &reference->prompt, &reference->n_prompt) ||
        get_ids(source, object, what, "continuation_ids", &reference->continuation,
                &reference->n_continuation) ||
        get_exactly(source, object, what, "margins", (size_t)reference->n_continuation,
                    &reference->margins) ||
        get_exactly(source, object, what, "logits", (size_t)source->config->vocab,
                    &reference->logits))
        return -1;
    return get_router(source, json_object_get(object, "router_last_prompt_position"), what,
                      reference);
}

int reference_load(const char *path, const struct model_config *config,
                   struct reference_file *file_p, struct reason *reason)
{
    struct source source = {path, config, reason};
    struct reference_file file = {0};
    json_t *root;
    if (json_object_load(path, FILE_MAX_BYTES, &root, reason))
        return -1;
    const json_t *array = json_object_get(root, "references");
    size_t n = json_array_size(array);
    if (n == 0 || n > REFERENCES_MAX) {
        reason_bad_input(reason, "%s: no array \"references\" of 1 to %d", path, REFERENCES_MAX);
        goto err_free;
    }
    file.references = calloc(n, sizeof(file.references[0]));
    if (!file.references) {
        reason_no_memory(reason);
        goto err_free;
    }
    file.count = (int)n;
    for (int i = 0; i < file.count; i++)
        if (get_reference(&source, json_array_get(array, (size_t)i), i, &file.references[i]))
            goto err_free;
    json_decref(root);
    *file_p = file;
    return 0;

err_free:
    json_decref(root);
    reference_free(&file);
    return -1;
}

void reference_free(struct reference_file *file)
{
    for (int i = 0; i < file->count; i++) {
        struct reference *reference = &file->references[i];
        free(reference->name);
        free(reference->prompt);
        free(reference->continuation);
        free(reference->margins);
        free(reference->logits);
        free(reference->experts);
        free(reference->weights);
        free(reference->gaps);
    }
    free(file->references);
    *file = (struct reference_file){0};
}

int reference_find(const struct reference_file *file, const int *ids, int count)
{
    for (int i = 0; i < file->count; i++)
        if (file->references[i].n_prompt == count &&
            memcmp(file->references[i].prompt, ids, (size_t)count * sizeof(int)) == 0)
            return i;
    return -1;
}
