/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's part of the map, made, written and read. */
#include "map/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { MAP_MAGIC = 0x5354414d, MAP_VERSION = 1 };

void stepaf_map_part_free(struct stepaf_map_part *op_peer)
{
    free(op_peer->ways);
    free(op_peer->runs);
    op_peer->ways = NULL;
    op_peer->runs = NULL;
    op_peer->n_ways = op_peer->n_runs = 0;
}

/* Room for one more in an array that grows by doubling. */
static bool grow(void **array_p, uint32_t n, size_t each)
{
    void *grown;

    if (n & (n - 1)) /* neither 0 nor a power of two: there is room */
        return true;
    grown = realloc(*array_p, (n ? 2 * (size_t)n : 1) * each);
    if (!grown)
        return false;
    *array_p = grown;
    return true;
}

/* Index + 1 of @a way among the part's, which are few; 0: out of memory. */
static uint32_t find_way(struct stepaf_map_part *op_peer, const struct stepaf_map_way *proto)
{
    void *ways = op_peer->ways;

    for (uint32_t i = op_peer->n_ways; i > 0; i--)
        if (!strcmp(op_peer->ways[i - 1].name, proto->name) &&
            !strcmp(op_peer->ways[i - 1].refused, proto->refused))
            return i;
    if (!grow(&ways, op_peer->n_ways, sizeof(op_peer->ways[0])))
        return 0;
    op_peer->ways = ways;
    op_peer->ways[op_peer->n_ways++] = *proto;
    return op_peer->n_ways;
}

bool stepaf_map_part_add(struct stepaf_map_part *op_peer, const struct stepaf_map_way *proto,
                         uint64_t moved, uint64_t messages)
{
    struct stepaf_map_run run = {1, proto ? find_way(op_peer, proto) : 0, moved, messages};
    struct stepaf_map_run *last = op_peer->n_runs ? &op_peer->runs[op_peer->n_runs - 1] : NULL;
    void *runs = op_peer->runs;

    if (proto && !run.proto)
        return false;
    if (last && last->proto == run.proto && last->moved == moved && last->messages == messages) {
        last->n++;
        return true;
    }
    if (!grow(&runs, op_peer->n_runs, sizeof(run)))
        return false;
    op_peer->runs = runs;
    op_peer->runs[op_peer->n_runs++] = run;
    return true;
}

void stepaf_map_part_pack(const struct stepaf_map_part *op_peer, struct stepaf_pack *pack)
{
    stepaf_pack_u32(pack, MAP_MAGIC);
    stepaf_pack_u32(pack, MAP_VERSION);
    stepaf_pack_u32(pack, (uint32_t)op_peer->status);
    stepaf_pack_text(pack, op_peer->text);
    stepaf_pack_u64(pack, op_peer->node_id);
    stepaf_pack_text(pack, op_peer->host);
    stepaf_pack_text(pack, op_peer->address);
    stepaf_pack_text(pack, op_peer->gpu);
    stepaf_pack_text(pack, op_peer->nic);
    stepaf_pack_text(pack, op_peer->cores);
    stepaf_pack_u32(pack, op_peer->n_ways);
    for (uint32_t i = 0; i < op_peer->n_ways; i++) {
        stepaf_pack_text(pack, op_peer->ways[i].name);
        stepaf_pack_text(pack, op_peer->ways[i].refused);
    }
    stepaf_pack_u32(pack, op_peer->n_runs);
    for (uint32_t i = 0; i < op_peer->n_runs; i++) {
        stepaf_pack_u32(pack, op_peer->runs[i].n);
        stepaf_pack_u32(pack, op_peer->runs[i].proto);
        stepaf_pack_u64(pack, op_peer->runs[i].moved);
        stepaf_pack_u64(pack, op_peer->runs[i].messages);
    }
}

/* A text that a terminal can be given. */
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

static bool read_ways(struct stepaf_unpack *unpack, uint32_t n_links,
                      struct stepaf_map_part *op_peer)
{
    op_peer->n_ways = stepaf_unpack_u32(unpack);
    if (unpack->failed || op_peer->n_ways > n_links)
        return false;
    op_peer->ways = calloc((size_t)op_peer->n_ways + 1, sizeof(op_peer->ways[0]));
    for (uint32_t i = 0; op_peer->ways && i < op_peer->n_ways && !unpack->failed; i++) {
        read_text(unpack, op_peer->ways[i].name, sizeof(op_peer->ways[i].name));
        read_text(unpack, op_peer->ways[i].refused, sizeof(op_peer->ways[i].refused));
    }
    return op_peer->ways && !unpack->failed;
}

static bool read_runs(struct stepaf_unpack *unpack, uint32_t n_links,
                      struct stepaf_map_part *op_peer)
{
    uint64_t n = 0;

    op_peer->n_runs = stepaf_unpack_u32(unpack);
    if (unpack->failed || op_peer->n_runs > n_links)
        return false;
    op_peer->runs = calloc((size_t)op_peer->n_runs + 1, sizeof(op_peer->runs[0]));
    for (uint32_t i = 0; op_peer->runs && i < op_peer->n_runs; i++) {
        struct stepaf_map_run *run = &op_peer->runs[i];
        run->n = stepaf_unpack_u32(unpack);
        run->proto = stepaf_unpack_u32(unpack);
        run->moved = stepaf_unpack_u64(unpack);
        run->messages = stepaf_unpack_u64(unpack);
        n += run->n;
        if (unpack->failed || !run->n || run->proto > op_peer->n_ways)
            return false;
    }
    return op_peer->runs && n == n_links;
}

stepaf_status_t stepaf_map_part_read(const void *blob, size_t bytes, uint32_t n_links,
                                     struct stepaf_map_part *part_p)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(blob, bytes);
    struct stepaf_map_part op_peer = {.role = part_p->role, .rank = part_p->rank};
    bool good = read_head(&unpack, &op_peer.status, op_peer.text);

    op_peer.node_id = stepaf_unpack_u64(&unpack);
    read_text(&unpack, op_peer.host, sizeof(op_peer.host));
    read_text(&unpack, op_peer.address, sizeof(op_peer.address));
    read_text(&unpack, op_peer.gpu, sizeof(op_peer.gpu));
    read_text(&unpack, op_peer.nic, sizeof(op_peer.nic));
    read_text(&unpack, op_peer.cores, sizeof(op_peer.cores));
    good = good && read_ways(&unpack, n_links, &op_peer) && read_runs(&unpack, n_links, &op_peer);
    if (!good || unpack.at != unpack.end) {
        stepaf_map_part_free(&op_peer);
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "a part of the map is malformed");
    }
    *part_p = op_peer;
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

    map.op_peers = calloc((size_t)size + 1, sizeof(map.op_peers[0]));
    for (int role = 0; role < 2; role++)
        map.world[role] = calloc((size_t)size + 1, sizeof(map.world[role][0]));
    if (!map.op_peers || !map.world[0] || !map.world[1]) {
        stepaf_map_close(&map);
        return false;
    }
    for (uint32_t r = 0; r < size; r++) {
        uint8_t role = roles[r] == STEPAF_FFN;
        map.op_peers[r].role = role;
        map.op_peers[r].rank = map.n_of[role];
        map.world[role][map.n_of[role]++] = r;
    }
    *map_p = map;
    return true;
}

void stepaf_map_close(struct stepaf_map *map)
{
    for (uint32_t r = 0; map->op_peers && r < map->size; r++)
        stepaf_map_part_free(&map->op_peers[r]);
    free(map->op_peers);
    free(map->world[0]);
    free(map->world[1]);
    *map = (struct stepaf_map){0};
}
