/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1

#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert.h"
#include "safetensors.h"

enum { INDEX_MAX_BYTES = 64 << 20, FILES_MAX = 4096 };

static const char single_file[] = "model.safetensors";
static const char index_file[] = "model.safetensors.index.json";

/* One file; mapped on first use. */
struct shard {
    char *name;
    uint8_t *bytes;
    uint64_t length;
    struct safetensors tensors;
};

struct checkpoint {
    char *dir;
    json_t *index; /* "weight_map" of the shards; NULL for a single file */
    struct shard *shards;
    int n_shards;
    uint64_t bytes_read;
};

static int map_file(const char *path, struct shard *shard, struct reason *reason)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return reason_bad_input(reason, "%s: %s", path, strerror(errno));
    if (fstat(fd, &status) || !S_ISREG(status.st_mode)) {
        close(fd);
        return reason_bad_input(reason, "%s: not a file", path);
    }
    if (status.st_size == 0) {
        close(fd);
        return reason_bad_input(reason, "%s: truncated: empty", path);
    }
    void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return reason_failed(reason, "%s: cannot be mapped: %s", path, strerror(errno));
    shard->bytes = bytes;
    shard->length = (uint64_t)status.st_size;
    return 0;
}

static int open_shard(struct checkpoint *checkpoint, struct shard *shard, struct reason *reason)
{
    char path[PATH_MAX];
    if (shard->bytes)
        return 0;
    if (snprintf(path, sizeof(path), "%s/%s", checkpoint->dir, shard->name) >= (int)sizeof(path))
        return reason_bad_input(reason, "%s: path too long", shard->name);
    if (map_file(path, shard, reason))
        return -1;
    if (safetensors_parse(shard->bytes, shard->length, path, &shard->tensors, reason)) {
        munmap(shard->bytes, (size_t)shard->length);
        shard->bytes = NULL;
        return -1;
    }
    return 0;
}

static int add_shard(struct checkpoint *checkpoint, const char *name, struct reason *reason)
{
    for (int i = 0; i < checkpoint->n_shards; i++)
        if (strcmp(checkpoint->shards[i].name, name) == 0)
            return 0;
    if (checkpoint->n_shards == FILES_MAX)
        return reason_bad_input(reason, "%s: more than %d files", index_file, FILES_MAX);
    struct shard *larger =
        realloc(checkpoint->shards, sizeof(*larger) * (size_t)(checkpoint->n_shards + 1));
    if (!larger)
        return reason_no_memory(reason);
    checkpoint->shards = larger;
    struct shard *shard = &larger[checkpoint->n_shards];
    *shard = (struct shard){.name = strdup(name)};
    if (!shard->name)
        return reason_no_memory(reason);
    checkpoint->n_shards++;
    return 0;
}

static int read_index(struct checkpoint *checkpoint, const char *path, struct reason *reason)
{
    const char *name;
    json_t *root, *file;
    if (json_object_load(path, INDEX_MAX_BYTES, &root, reason))
        return -1;
    checkpoint->index = json_incref(json_object_get(root, "weight_map"));
    json_decref(root);
    if (!json_is_object(checkpoint->index))
        return reason_bad_input(reason, "%s: no \"weight_map\"", path);
    json_object_foreach(checkpoint->index, name, file)
    {
        const char *text = json_string_value(file);
        /* Open a file of this directory only. */
        if (!text || !*text || *text == '.' || strchr(text, '/'))
            return reason_bad_input(reason, "%s: \"%s\" is in no file of the directory", path,
                                    name);
        if (add_shard(checkpoint, text, reason))
            return -1;
    }
    return 0;
}

/* Open the single file if it exists, else the index. */
static int find_files(struct checkpoint *checkpoint, struct reason *reason)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", checkpoint->dir, index_file) >= (int)sizeof(path))
        return reason_bad_input(reason, "%s: path too long", checkpoint->dir);
    char *file = path + strlen(checkpoint->dir) + 1;
    strcpy(file, single_file);
    if (access(path, F_OK) == 0)
        return add_shard(checkpoint, single_file, reason);
    strcpy(file, index_file);
    if (access(path, F_OK) == 0)
        return read_index(checkpoint, path, reason);
    return reason_bad_input(reason, "%s: neither %s nor %s", checkpoint->dir, single_file,
                            index_file);
}

int checkpoint_open(const char *dir, struct checkpoint **checkpoint_p, struct reason *reason)
{
    struct checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
    if (!checkpoint || !(checkpoint->dir = strdup(dir))) {
        free(checkpoint);
        return reason_no_memory(reason);
    }
    if (find_files(checkpoint, reason)) {
        checkpoint_close(checkpoint);
        return -1;
    }
    *checkpoint_p = checkpoint;
    return 0;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (int i = 0; i < checkpoint->n_shards; i++) {
        struct shard *shard = &checkpoint->shards[i];
        if (shard->bytes) {
            safetensors_free(&shard->tensors);
            munmap(shard->bytes, (size_t)shard->length);
        }
        free(shard->name);
    }
    free(checkpoint->shards);
    json_decref(checkpoint->index);
    free(checkpoint->dir);
    free(checkpoint);
}

/* Find the file that has, or should have, a tensor. */
static struct shard *find_shard(struct checkpoint *checkpoint, const char *name)
{
    if (!checkpoint->index)
        return &checkpoint->shards[0];
    const char *file = json_string_value(json_object_get(checkpoint->index, name));
    for (int i = 0; file && i < checkpoint->n_shards; i++)
        if (strcmp(checkpoint->shards[i].name, file) == 0)
            return &checkpoint->shards[i];
    return NULL;
}

static void format_shape(char *text, size_t capacity, int ndim, const int64_t *shape)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < ndim && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%lld", i ? ", " : "",
                                 (long long)shape[i]);
}

static int check_entry(const struct shard *shard, const struct safetensors_entry *entry,
                       const struct tensor_part *part, struct reason *reason)
{
    const int64_t wanted[2] = {part->rows, part->cols};
    int ndim = part->cols ? 2 : 1;
    if (!convert_knows(entry->dtype))
        return reason_bad_input(reason,
                                "%s: tensor \"%s\" has dtype %s; weights are F32, F16 or BF16",
                                shard->name, part->name, safetensors_dtype_name(entry->dtype));
    if (entry->ndim == ndim && memcmp(entry->shape, wanted, sizeof(int64_t) * (size_t)ndim) == 0)
        return 0;
    char is[128], should[64];
    format_shape(is, sizeof(is), entry->ndim, entry->shape);
    format_shape(should, sizeof(should), ndim, wanted);
    return reason_bad_input(reason,
                            "%s: tensor \"%s\" has shape [%s], but config.json makes it "
                            "[%s]",
                            shard->name, part->name, is, should);
}

static int find_tensor(struct checkpoint *checkpoint, const struct tensor_part *part,
                       struct shard **shard_p, const struct safetensors_entry **entry_p,
                       struct reason *reason)
{
    struct shard *shard = find_shard(checkpoint, part->name);
    if (!shard)
        return reason_bad_input(reason, "%s: no tensor \"%s\"", index_file, part->name);
    if (open_shard(checkpoint, shard, reason))
        return -1;
    const struct safetensors_entry *entry = safetensors_find(&shard->tensors, part->name);
    if (!entry)
        return reason_bad_input(reason, "%s: no tensor \"%s\"", shard->name, part->name);
    if (check_entry(shard, entry, part, reason))
        return -1;
    *shard_p = shard;
    *entry_p = entry;
    return 0;
}

int checkpoint_check(struct checkpoint *checkpoint, const struct tensor_part *part,
                     struct reason *reason)
{
    struct shard *shard;
    const struct safetensors_entry *entry;
    return find_tensor(checkpoint, part, &shard, &entry, reason);
}

int checkpoint_read(struct checkpoint *checkpoint, const struct tensor_part *part, float *values_p,
                    struct reason *reason)
{
    struct shard *shard;
    const struct safetensors_entry *entry;
    if (find_tensor(checkpoint, part, &shard, &entry, reason))
        return -1;
    size_t size = convert_bytes(entry->dtype);
    size_t cols = part->cols ? (size_t)part->cols : 1;
    size_t col_count = part->cols ? (size_t)part->col_count : 1;
    const uint8_t *first = shard->bytes + entry->begin +
                           ((size_t)part->row_first * cols + (size_t)part->col_first) * size;
    if (col_count == cols) {
        convert_to_float(entry->dtype, first, (size_t)part->row_count * cols, values_p);
    } else {
        for (size_t row = 0; row < (size_t)part->row_count; row++)
            convert_to_float(entry->dtype, first + row * cols * size, col_count,
                             values_p + row * col_count);
    }
    if (!convert_all_finite(values_p, (size_t)part->row_count * col_count))
        return reason_bad_input(reason, "%s: tensor \"%s\" has a value that is not finite",
                                shard->name, part->name);
    checkpoint->bytes_read += (uint64_t)part->row_count * col_count * size;
    return 0;
}

static int check_layer(const char *name, int layers, struct reason *reason)
{
    static const char prefix[] = "model.layers.";
    char *end;
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
        return 0;
    long layer = strtol(name + sizeof(prefix) - 1, &end, 10);
    if (*end != '.' || layer < layers)
        return 0;
    return reason_bad_input(reason,
                            "tensor \"%s\" is of a layer that config.json, with %d "
                            "layers, does not have",
                            name, layers);
}

int checkpoint_check_layers(const struct checkpoint *checkpoint, int layers, struct reason *reason)
{
    const char *name;
    json_t *file;
    json_object_foreach(checkpoint->index, name,
                        file) if (check_layer(name, layers, reason)) return -1;
    for (int i = 0; i < checkpoint->n_shards; i++)
        for (size_t j = 0; j < checkpoint->shards[i].tensors.count; j++)
            if (check_layer(checkpoint->shards[i].tensors.entries[j].name, layers, reason))
                return -1;
    return 0;
}

uint64_t checkpoint_bytes_read(const struct checkpoint *checkpoint)
{
    return checkpoint->bytes_read;
}
