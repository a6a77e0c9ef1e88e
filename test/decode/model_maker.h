/* SPDX-License-Identifier: Apache-2.0 */
/* Model directories made for a test: whole ones with random weights, and changed or broken copies
 * of those that come with stepaf_decode. */
#ifndef TEST_DECODE_MODEL_MAKER_H
#define TEST_DECODE_MODEL_MAKER_H

#include <stdint.h>

#include <jansson.h>

/* A safetensors file in memory: header and data apart. */
struct tensor_file {
    json_t *header;
    uint8_t *data;
    size_t bytes;
};

/* Read, write (with the header's true length, or with @a length if that is not 0), end. */
void tensor_file_read(const char *path, struct tensor_file *file_p);
void tensor_file_write(const struct tensor_file *file, const char *path, uint64_t length);
void tensor_file_free(struct tensor_file *file);

/* Append a tensor: the header gets its entry, the data its bytes. */
void tensor_file_add(struct tensor_file *file, const char *name, const char *dtype,
                     const int64_t *shape, int ndim, const void *bytes, size_t count);

/* Make directory @a name in the test's scratch directory with copies of config.json,
 * tokenizer.json and, if @a weights, model.safetensors of @a model. Returns its path, which lasts
 * until the next call. */
const char *model_copy(const char *model, const char *name, int weights);

/* Path of a file of a directory; lasts until the next call. */
const char *model_path(const char *dir, const char *file);

/* Replace or, with value NULL, remove a field of @a dir's config.json; takes the value. */
void model_set(const char *dir, const char *field, json_t *value);

/* Make directory @a name with a small model of random weights: @a config, which it takes, has
 * what differs from a usual Qwen3-MoE. Returns its path as model_copy. */
const char *model_random(const char *name, json_t *config, unsigned seed);

#endif
