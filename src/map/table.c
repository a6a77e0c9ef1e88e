/* SPDX-License-Identifier: Apache-2.0 */
/* The table of IDs: where each rank is. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/shorten.h"
#include "map/map.h"
#include "topo/cpus.h"

enum { CELL_MAX = 64, WORD_MAX = 51, COLUMNS = 8 };

static const char *const titles[COLUMNS] = {"ID",  "node", "address", "role",
                                            "GPU", "NIC",  "cores",   "ranks"};

struct row {
    char cell[COLUMNS][CELL_MAX];
};

/* Join what the members of a group have in one field, @a offset bytes into a part: the first
 * member's value, and a mark if others differ. */
static void join(const struct stepaf_map *map, const struct stepaf_map_groups *groups, uint32_t g,
                 size_t offset, char cell_p[CELL_MAX])
{
    const char *first = (const char *)&map->parts[groups->list[g].first] + offset;
    bool differs = false;

    for (uint32_t r = groups->list[g].first; r < map->size && !differs; r++)
        differs = groups->of[r] == g && strcmp((const char *)&map->parts[r] + offset, first);
    stepaf_shorten(first[0] ? first : "-", cell_p, WORD_MAX);
    if (differs)
        (void)strcat(cell_p, ",..");
}

/* List all cores that some member may run on. */
static void join_cores(const struct stepaf_map *map, const struct stepaf_map_groups *groups,
                       uint32_t g, char cell_p[CELL_MAX])
{
    struct stepaf_cpus all = {0}, own;

    for (uint32_t r = groups->list[g].first; r < map->size; r++)
        if (groups->of[r] == g && stepaf_cpus_parse(map->parts[r].cores, &own))
            for (size_t i = 0; i < sizeof(own.bits) / sizeof(own.bits[0]); i++)
                all.bits[i] |= own.bits[i];
    stepaf_cpus_format(&all, cell_p, 32);
    if (!cell_p[0])
        snprintf(cell_p, CELL_MAX, "-");
}

/* List the world ranks of a group, such as "0-3,8". */
static void list_ranks(const struct stepaf_map *map, const struct stepaf_map_groups *groups,
                       uint32_t g, char cell_p[CELL_MAX])
{
    size_t used = 0;

    cell_p[0] = '\0';
    for (uint32_t r = groups->list[g].first, last; r < map->size; r = last + 1) {
        last = r;
        if (groups->of[r] != g)
            continue;
        while (last + 1 < map->size && groups->of[last + 1] == g)
            last++;
        if (used > CELL_MAX - 28) {
            snprintf(cell_p + used, CELL_MAX - used, ",..");
            return;
        }
        used += (size_t)snprintf(cell_p + used, CELL_MAX - used, last > r ? "%s%u-%u" : "%s%u",
                                 used ? "," : "", r, last);
    }
}

static void fill_row(const struct stepaf_map *map, const struct stepaf_map_groups *groups,
                     uint32_t g, struct row *row_p)
{
    snprintf(row_p->cell[0], CELL_MAX, "%u", g);
    join(map, groups, g, offsetof(struct stepaf_map_part, host), row_p->cell[1]);
    join(map, groups, g, offsetof(struct stepaf_map_part, address), row_p->cell[2]);
    snprintf(row_p->cell[3], CELL_MAX, "%s", groups->list[g].role == STEPAF_FFN ? "ffn" : "attn");
    join(map, groups, g, offsetof(struct stepaf_map_part, gpu), row_p->cell[4]);
    join(map, groups, g, offsetof(struct stepaf_map_part, nic), row_p->cell[5]);
    join_cores(map, groups, g, row_p->cell[6]);
    list_ranks(map, groups, g, row_p->cell[7]);
}

static void print_row(const struct row *row, const int *widths, FILE *stream)
{
    fprintf(stream, "%*s", widths[0], row->cell[0]);
    for (int c = 1; c < COLUMNS - 1; c++)
        fprintf(stream, "  %-*s", widths[c], row->cell[c]);
    fprintf(stream, "  %s\n", row->cell[COLUMNS - 1]);
}

static const char *name_fate(enum stepaf_map_fate fate)
{
    switch (fate) {
    case STEPAF_MAP_JOINED:
        return "has joined";
    case STEPAF_MAP_LEFT:
        return "has left";
    case STEPAF_MAP_VACANT:
        return "has not joined yet";
    default:
        return "is out: it was lost";
    }
}

/* Print one line for each rank that is out, has left, has joined, or has returned. */
static void print_fates(const struct stepaf_map *map, FILE *stream)
{
    unsigned n = 0;

    for (uint32_t r = 0; r < map->size; r++) {
        const struct stepaf_map_part *part = &map->parts[r];
        if (part->fate == STEPAF_MAP_STAYED)
            continue;
        if (n++ >= STEPAF_MAP_FATES)
            continue;
        fprintf(stream, "%s%s rank %u (world rank %u) ", n == 1 ? "\n" : "",
                part->role == STEPAF_FFN ? "FFN" : "attention", part->rank, r);
        if (part->fate == STEPAF_MAP_RETURNED)
            fprintf(stream, "has returned, %u time%s\n", part->n_returns,
                    part->n_returns == 1 ? "" : "s");
        else
            fprintf(stream, "%s\n", name_fate(part->fate));
    }
    if (n > STEPAF_MAP_FATES)
        fprintf(stream, "and %u more are out or have returned\n", n - STEPAF_MAP_FATES);
}

void stepaf_map_print_table(const struct stepaf_map *map, const struct stepaf_map_groups *groups,
                            FILE *stream)
{
    int widths[COLUMNS] = {0};
    struct row row, title;

    for (int c = 0; c < COLUMNS; c++) {
        snprintf(title.cell[c], CELL_MAX, "%s", titles[c]);
        widths[c] = (int)strlen(titles[c]);
    }
    for (uint32_t g = 0; g < groups->n; g++) {
        fill_row(map, groups, g, &row);
        for (int c = 0; c < COLUMNS; c++)
            if ((int)strlen(row.cell[c]) > widths[c])
                widths[c] = (int)strlen(row.cell[c]);
    }
    fprintf(stream, "stepaf map, epoch %u: %u attention and %u FFN ranks on %u node%s\n\n",
            map->epoch, map->n_of[STEPAF_ATTENTION], map->n_of[STEPAF_FFN], groups->n_nodes,
            groups->n_nodes == 1 ? "" : "s");
    print_row(&title, widths, stream);
    for (uint32_t g = 0; g < groups->n; g++) {
        fill_row(map, groups, g, &row);
        print_row(&row, widths, stream);
    }
    print_fates(map, stream);
}

char *stepaf_map_text(const struct stepaf_map *map)
{
    struct stepaf_map_groups groups;
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream;

    if (!stepaf_map_group(map, &groups))
        return NULL;
    stream = open_memstream(&text, &bytes);
    if (stream) {
        stepaf_map_print_table(map, &groups, stream);
        bool whole = stepaf_map_print_matrix(map, &groups, stream) && !ferror(stream);
        if (fclose(stream) || !whole) {
            free(text);
            text = NULL;
        }
    }
    stepaf_map_groups_free(&groups);
    return text;
}
