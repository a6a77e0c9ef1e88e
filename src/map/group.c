/* SPDX-License-Identifier: Apache-2.0 */
/* Grouping of ranks into the IDs of the map's rows and columns. */
#include <stdlib.h>

#include "map/map.h"

/* Return the first group, from @a from on, with the part's node and the part's is_out; the number
 * of groups if there is none. */
static uint32_t find_node(const struct stepaf_map *map, const struct stepaf_map_groups *groups,
                          uint32_t from, const struct stepaf_map_part *part)
{
    uint32_t g = from;

    while (g < groups->n && (groups->list[g].is_out != stepaf_map_is_out(part) ||
                             map->parts[groups->list[g].first].node_id != part->node_id))
        g++;
    return g;
}

static void group_role(const struct stepaf_map *map, uint8_t role, struct stepaf_map_groups *groups)
{
    uint32_t from = groups->n;

    for (uint32_t i = 0; i < map->n_of[role]; i++) {
        uint32_t r = map->world[role][i], g = groups->n;
        if (map->size > STEPAF_MAP_ALONE)
            g = find_node(map, groups, from, &map->parts[r]);
        if (g == groups->n)
            groups->list[groups->n++] = (struct stepaf_map_group){
                .role = role, .is_out = stepaf_map_is_out(&map->parts[r]), .first = r};
        groups->list[g].n++;
        groups->of[r] = g;
    }
}

static uint32_t count_nodes(const struct stepaf_map *map, const struct stepaf_map_groups *groups)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < groups->n; g++)
        n += !groups->list[g].is_out &&
             find_node(map, groups, 0, &map->parts[groups->list[g].first]) == g;
    return n;
}

bool stepaf_map_group(const struct stepaf_map *map, struct stepaf_map_groups *groups_p)
{
    struct stepaf_map_groups groups = {0};

    groups.list = calloc((size_t)map->size + 1, sizeof(groups.list[0]));
    groups.of = calloc((size_t)map->size + 1, sizeof(groups.of[0]));
    if (!groups.list || !groups.of) {
        stepaf_map_groups_free(&groups);
        return false;
    }
    group_role(map, STEPAF_ATTENTION, &groups);
    groups.n_attention = groups.n;
    group_role(map, STEPAF_FFN, &groups);
    groups.n_nodes = count_nodes(map, &groups);
    *groups_p = groups;
    return true;
}

void stepaf_map_groups_free(struct stepaf_map_groups *groups)
{
    free(groups->list);
    free(groups->of);
    *groups = (struct stepaf_map_groups){0};
}
