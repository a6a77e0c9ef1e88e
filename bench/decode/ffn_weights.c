/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn_weights.h"

#include <stdio.h>
#include <stdlib.h>

/* Columns first .. first + width - 1 of the FFN whose tensors begin with @a prefix. */
static int load_unit(const struct loader *loader, const char *prefix, int whole_width, int first,
                     int width, struct ffn_unit *unit)
{
    int64_t hidden = loader->config->hidden;
    struct tensor_part gate_up[] = {
        tensor_whole(whole_width, hidden, "%s.gate_proj.weight", prefix),
        tensor_whole(whole_width, hidden, "%s.up_proj.weight", prefix)};
    struct tensor_part down = tensor_whole(hidden, whole_width, "%s.down_proj.weight", prefix);
    for (int i = 0; i < 2; i++) {
        gate_up[i].row_first = first;
        gate_up[i].row_count = width;
    }
    down.col_first = first;
    down.col_count = width;
    unit->width = width;
    return tensor_load(loader, gate_up, 2, &unit->gate_up) ||
                   tensor_load(loader, &down, 1, &unit->down)
               ? -1
               : 0;
}

static int load_ffn_layer(const struct loader *loader, int index, int part, int parts,
                          struct ffn_layer *layer)
{
    const struct model_config *config = loader->config;
    char prefix[64];
    layer->sparse = config->sparse[index];
    int n = layer->sparse ? (config->experts - part + parts - 1) / parts : 1;
    layer->units = calloc((size_t)n, sizeof(layer->units[0]));
    if (!layer->units)
        return reason_no_memory(loader->reason);
    layer->n_units = n;
    if (!layer->sparse) {
        int first = (int)((int64_t)config->intermediate * part / parts);
        int end = (int)((int64_t)config->intermediate * (part + 1) / parts);
        snprintf(prefix, sizeof(prefix), "model.layers.%d.mlp", index);
        return load_unit(loader, prefix, config->intermediate, first, end - first,
                         &layer->units[0]);
    }
    for (int u = 0; u < n; u++) {
        snprintf(prefix, sizeof(prefix), "model.layers.%d.mlp.experts.%d", index, u * parts + part);
        if (load_unit(loader, prefix, config->expert_width, 0, config->expert_width,
                      &layer->units[u]))
            return -1;
    }
    return 0;
}

int ffn_weights_load(const char *dir, const struct model_config *config, int part, int parts,
                     load_progress_t progress, void *arg, struct ffn_weights **weights_p,
                     struct reason *reason)
{
    struct loader loader = {NULL, config, reason};
    if (checkpoint_open(dir, &loader.checkpoint, reason))
        return -1;
    struct ffn_weights *weights = calloc(1, sizeof(*weights));
    if (!weights ||
        !(weights->layers = calloc((size_t)config->layers, sizeof(weights->layers[0])))) {
        reason_no_memory(reason);
        goto err_free;
    }
    weights->n_layers = config->layers;
    weights->part = part;
    weights->parts = parts;
    for (int i = 0; i < config->layers; i++) {
        if (load_ffn_layer(&loader, i, part, parts, &weights->layers[i]))
            goto err_free;
        if (progress)
            progress(i + 1, config->layers, arg);
    }
    weights->bytes_read = checkpoint_bytes_read(loader.checkpoint);
    checkpoint_close(loader.checkpoint);
    *weights_p = weights;
    return 0;

err_free:
    ffn_weights_free(weights);
    checkpoint_close(loader.checkpoint);
    return -1;
}

void ffn_weights_free(struct ffn_weights *weights)
{
    if (!weights)
        return;
    for (int i = 0; i < weights->n_layers; i++) {
        for (int u = 0; u < weights->layers[i].n_units; u++) {
            free(weights->layers[i].units[u].gate_up);
            free(weights->layers[i].units[u].down);
        }
        free(weights->layers[i].units);
    }
    free(weights->layers);
    free(weights);
}
