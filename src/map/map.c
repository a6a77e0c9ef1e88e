/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's part of the map: making, writing and reading it. */
#include "map/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { MAP_MAGIC = 0x5354414d, MAP_VERSION = 1 };

void stepaf_map_part_free(struct stepaf_map_part *part)
{
    free(part->ways);
    free(part->runs);
    part->ways = NULL;
    part->runs = NULL;
    part->n_ways = part->n_runs = 0;
}

/* Make space for one more entry in an array that grows by doubling. */
static bool grow_array(void **array_p, uint32_t n, size_t each)
{
    void *grown;

    if (n & (n - 1)) /* neither 0 nor a power of two: there is space */
        return true;
    grown = realloc(*array_p, (n ? 2 * (size_t)n : 1) * each);
    if (!grown)
        return false;
    *array_p = grown;
    return true;
}

/* Return index + 1 of @a way among the part's few ways, adding it if needed; 0: out of memory. */
static uint32_t find_way(struct stepaf_map_part *part, const struct stepaf_map_way *way)
{
    void *ways = part->ways;

    for (uint32_t i = part->n_ways; i > 0; i--)
        if (!strcmp(part->ways[i - 1].name, way->name) &&
            !strcmp(part->ways[i - 1].refused, way->refused))
            return i;
    if (!grow_array(&ways, part->n_ways, sizeof(part->ways[0])))
        return 0;
    part->ways = ways;
    part->ways[part->n_ways++] = *way;
    return part->n_ways;
}

bool stepaf_map_part_add(struct stepaf_map_part *part, const struct stepaf_map_way *way,
                         uint64_t moved, uint64_t messages)
{
    struct stepaf_map_run run = {1, way ? find_way(part, way) : 0, moved, messages};
    struct stepaf_map_run *last = part->n_runs ? &part->runs[part->n_runs - 1] : NULL;
    void *runs = part->runs;

    if (way && !run.way)
        return false;
    if (last && last->way == run.way && last->moved == moved && last->messages == messages) {
        last->n++;
        return true;
    }
    if (!grow_array(&runs, part->n_runs, sizeof(run)))
        return false;
    part->runs = runs;
    part->runs[part->n_runs++] = run;
    return true;
}

void stepaf_map_part_pack(const struct stepaf_map_part *part, struct stepaf_pack *pack)
{
    stepaf_pack_u32(pack, MAP_MAGIC);
    stepaf_pack_u32(pack, MAP_VERSION);
    stepaf_pack_u32(pack, (uint32_t)part->status);
    stepaf_pack_text(pack, part->text);
    stepaf_pack_u64(pack, part->node_id);
    stepaf_pack_text(pack, part->host);
    stepaf_pack_text(pack, part->address);
    stepaf_pack_text(pack, part->gpu);
    stepaf_pack_text(pack, part->nic);
    stepaf_pack_text(pack, part->cores);
    stepaf_pack_u32(pack, part->n_ways);
    for (uint32_t i = 0; i < part->n_ways; i++) {
        stepaf_pack_text(pack, part->ways[i].name);
        stepaf_pack_text(pack, part->ways[i].refused);
    }
    stepaf_pack_u32(pack, part->n_runs);
    for (uint32_t i = 0; i < part->n_runs; i++) {
        stepaf_pack_u32(pack, part->runs[i].n);
        stepaf_pack_u32(pack, part->runs[i].way);
        stepaf_pack_u64(pack, part->runs[i].moved);
        stepaf_pack_u64(pack, part->runs[i].messages);
    }
}

/* Read a text, and make it printable on a terminal. */
static void read_text(struct stepaf_unpack *unpack, char *text_p, size_t capacity)
{
    stepaf_unpack_text(unpack, text_p, capacity);
    for (char *c = text_p; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static bool read_head(struct stepaf_unpack *unpack, stepaf_status_t *status_p,
                      char text_p[STEPAF_ERROR_TEXT_MAX])
{
    if (stepaf_unpack_u32(unpack) != MAP_MAGIC || stepaf_unpack_u32(unpack) != MAP_VERSION)
        return false;
    *status_p = stepaf_status_from(stepaf_unpack_u32(unpack));
    read_text(unpack, text_p, STEPAF_ERROR_TEXT_MAX);
    return !unpack->failed;
}

static bool read_ways(struct stepaf_unpack *unpack, uint32_t n_links, struct stepaf_map_part *part)
{
    part->n_ways = stepaf_unpack_u32(unpack);
    if (unpack->failed || part->n_ways > n_links)
        return false;
    part->ways = calloc((size_t)part->n_ways + 1, sizeof(part->ways[0]));
    for (uint32_t i = 0; part->ways && i < part->n_ways && !unpack->failed; i++) {
        read_text(unpack, part->ways[i].name, sizeof(part->ways[i].name));
        read_text(unpack, part->ways[i].refused, sizeof(part->ways[i].refused));
    }
    return part->ways && !unpack->failed;
}

static bool read_runs(struct stepaf_unpack *unpack, uint32_t n_links, struct stepaf_map_part *part)
{
    uint64_t n = 0;

    part->n_runs = stepaf_unpack_u32(unpack);
    if (unpack->failed || part->n_runs > n_links)
        return false;
    part->runs = calloc((size_t)part->n_runs + 1, sizeof(part->runs[0]));
    for (uint32_t i = 0; part->runs && i < part->n_runs; i++) {
        struct stepaf_map_run *run = &part->runs[i];
        run->n = stepaf_unpack_u32(unpack);
        run->way = stepaf_unpack_u32(unpack);
        run->moved = stepaf_unpack_u64(unpack);
        run->messages = stepaf_unpack_u64(unpack);
        n += run->n;
        if (unpack->failed || !run->n || run->way > part->n_ways)
            return false;
    }
    return part->runs && n == n_links;
}

stepaf_status_t stepaf_map_part_read(const void *blob, size_t bytes, uint32_t n_links,
                                     struct stepaf_map_part *part_p)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(blob, bytes);
    struct stepaf_map_part part = {.role = part_p->role,
                                   .rank = part_p->rank,
                                   .fate = part_p->fate,
                                   .n_returns = part_p->n_returns};
    bool good = read_head(&unpack, &part.status, part.text);

    part.node_id = stepaf_unpack_u64(&unpack);
    read_text(&unpack, part.host, sizeof(part.host));
    read_text(&unpack, part.address, sizeof(part.address));
    read_text(&unpack, part.gpu, sizeof(part.gpu));
    read_text(&unpack, part.nic, sizeof(part.nic));
    read_text(&unpack, part.cores, sizeof(part.cores));
    good = good && read_ways(&unpack, n_links, &part) && read_runs(&unpack, n_links, &part);
    if (!good || unpack.at != unpack.end) {
        stepaf_map_part_free(&part);
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "a part of the map is malformed");
    }
    *part_p = part;
    return STEPAF_OK;
}

stepaf_status_t stepaf_map_verdict_read(const void *blob, size_t bytes, stepaf_status_t *status_p,
                                        char text_p[STEPAF_ERROR_TEXT_MAX])
{
    struct stepaf_unpack unpack = stepaf_unpack_from(blob, bytes);

    if (!read_head(&unpack, status_p, text_p))
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "a part of the map is malformed");
    return STEPAF_OK;
}

bool stepaf_map_open(struct stepaf_map *map_p, uint32_t size, const uint8_t *roles)
{
    struct stepaf_map map = {.size = size};

    map.parts = calloc((size_t)size + 1, sizeof(map.parts[0]));
    for (int role = 0; role < 2; role++)
        map.world[role] = calloc((size_t)size + 1, sizeof(map.world[role][0]));
    if (!map.parts || !map.world[0] || !map.world[1]) {
        stepaf_map_close(&map);
        return false;
    }
    for (uint32_t r = 0; r < size; r++) {
        uint8_t role = roles[r] == STEPAF_FFN;
        map.parts[r].role = role;
        map.parts[r].rank = map.n_of[role];
        map.world[role][map.n_of[role]++] = r;
    }
    *map_p = map;
    return true;
}

void stepaf_map_close(struct stepaf_map *map)
{
    for (uint32_t r = 0; map->parts && r < map->size; r++)
        stepaf_map_part_free(&map->parts[r]);
    free(map->parts);
    free(map->world[0]);
    free(map->world[1]);
    *map = (struct stepaf_map){0};
}
