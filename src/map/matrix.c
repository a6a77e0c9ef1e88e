/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix of the transports in use, with attention rows and FFN columns, and the notes below it:
 * the bytes of each transport, and the better transports that were refused. */
#include <stdlib.h>
#include <string.h>

#include "map/map.h"

enum { NAMES_MAX = 52, NONE = 0, SEVERAL = NAMES_MAX + 1, CELL_MAX = 72, BYTES_MAX = 16 };

/* The links between two IDs. */
struct cell {
    uint8_t name; /* index + 1; NONE, SEVERAL */
    uint64_t pushed, pulled;
};

/* All links that use one transport. */
struct total {
    const char *name;
    uint64_t links;
    uint64_t pushed, pulled;
};

/* All links where the same transports were refused for the same reasons. */
struct refusal {
    const struct stepaf_map_way *way;
    uint64_t links;
    uint32_t attention, ffn; /* the first such link */
};

struct matrix {
    const struct stepaf_map *map;
    const struct stepaf_map_groups *groups;
    uint32_t columns;
    struct cell *cells;
    uint8_t n_names;
    struct total names[NAMES_MAX];
    uint32_t n_refusals;
    uint32_t more_refusals;
    struct refusal refusals[STEPAF_MAP_REFUSED];
};

/* Return index + 1 of a transport's name. Names beyond the alphabet share the last letter. */
static uint8_t find_name(struct matrix *m, const char *name)
{
    uint8_t i = 0;

    while (i < m->n_names && strcmp(m->names[i].name, name))
        i++;
    if (i == NAMES_MAX)
        return NAMES_MAX;
    if (i == m->n_names)
        m->names[m->n_names++].name = name;
    return (uint8_t)(i + 1);
}

static void note_refusal(struct matrix *m, const struct stepaf_map_way *way, uint32_t attention,
                         uint32_t ffn)
{
    uint32_t i = 0;

    if (!way->refused[0])
        return;
    while (i < m->n_refusals && (strcmp(m->refusals[i].way->name, way->name) ||
                                 strcmp(m->refusals[i].way->refused, way->refused)))
        i++;
    if (i == STEPAF_MAP_REFUSED) {
        m->more_refusals++;
        return;
    }
    if (i == m->n_refusals)
        m->refusals[m->n_refusals++] = (struct refusal){way, 0, attention, ffn};
    m->refusals[i].links++;
}

static struct cell *cell_of(const struct matrix *m, uint32_t attention, uint32_t ffn)
{
    uint32_t row = m->groups->of[m->map->world[STEPAF_ATTENTION][attention]];
    uint32_t column = m->groups->of[m->map->world[STEPAF_FFN][ffn]] - m->groups->n_attention;

    return &m->cells[(size_t)row * m->columns + column];
}

/* Count a link as its attention rank sees it. */
static void count_push(struct matrix *m, const struct stepaf_map_part *part, uint32_t ffn,
                       const struct stepaf_map_run *run)
{
    struct cell *cell = cell_of(m, part->rank, ffn);
    uint8_t name;

    if (!run->way)
        return;
    name = find_name(m, part->ways[run->way - 1].name);
    cell->name = cell->name == NONE || cell->name == name ? name : SEVERAL;
    cell->pushed += run->moved;
    m->names[name - 1].links++;
    m->names[name - 1].pushed += run->moved;
    note_refusal(m, &part->ways[run->way - 1], part->rank, ffn);
}

/* Count a link as its FFN rank sees it, which writes the answers. */
static void count_pull(struct matrix *m, const struct stepaf_map_part *part, uint32_t attention,
                       const struct stepaf_map_run *run)
{
    if (!run->way)
        return;
    cell_of(m, attention, part->rank)->pulled += run->moved;
    m->names[find_name(m, part->ways[run->way - 1].name) - 1].pulled += run->moved;
}

static void count_part(struct matrix *m, const struct stepaf_map_part *part)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < part->n_runs; i++)
        for (uint32_t k = 0; k < part->runs[i].n; k++, at++) {
            if (part->role == STEPAF_FFN)
                count_pull(m, part, at, &part->runs[i]);
            else
                count_push(m, part, at, &part->runs[i]);
        }
}

/* Format a number of bytes, such as "1.5M". */
static const char *bytes_text(uint64_t bytes, char text_p[BYTES_MAX])
{
    static const char units[] = "KMGTPE";
    double value = (double)bytes / 1024;
    int unit = 0;

    if (bytes < 1024) {
        snprintf(text_p, BYTES_MAX, "%u", (unsigned)bytes);
        return text_p;
    }
    for (; value >= 1023.95 && units[unit + 1]; unit++)
        value /= 1024;
    snprintf(text_p, BYTES_MAX, "%.1f%c", value, units[unit]);
    return text_p;
}

static char letter_of(uint8_t name)
{
    static const char letters[] = ".ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz*";

    return letters[name];
}

static void cell_text(const struct matrix *m, const struct cell *cell, char text_p[CELL_MAX])
{
    char pushed[BYTES_MAX], pulled[BYTES_MAX];
    const char *name = cell->name == NONE      ? "-"
                       : cell->name == SEVERAL ? "several"
                                               : m->names[cell->name - 1].name;

    if (m->map->with_bytes && cell->name != NONE)
        snprintf(text_p, CELL_MAX, "%s %s/%s", name, bytes_text(cell->pushed, pushed),
                 bytes_text(cell->pulled, pulled));
    else
        snprintf(text_p, CELL_MAX, "%s", name);
}

static int cell_width(const struct matrix *m)
{
    size_t width = 6;
    char text[CELL_MAX];

    for (size_t i = 0; i < (size_t)m->groups->n_attention * m->columns; i++) {
        cell_text(m, &m->cells[i], text);
        if (strlen(text) > width)
            width = strlen(text);
    }
    return (int)width;
}

/* Return whether two rows show the same. */
static bool same_rows(const struct matrix *m, uint32_t one, uint32_t other)
{
    const struct cell *a = &m->cells[(size_t)one * m->columns];
    const struct cell *b = &m->cells[(size_t)other * m->columns];

    for (uint32_t c = 0; c < m->columns; c++)
        if (a[c].name != b[c].name || (m->columns <= STEPAF_MAP_COLUMNS && m->map->with_bytes &&
                                       (a[c].pushed != b[c].pushed || a[c].pulled != b[c].pulled)))
            return false;
    return true;
}

/* Print rows. Consecutive rows with the same content are printed as one. */
static void print_rows(const struct matrix *m, uint32_t from, uint32_t to, int width, FILE *stream)
{
    bool many = m->map->size > STEPAF_MAP_ALONE;
    char text[CELL_MAX], label[32];

    for (uint32_t row = 0, last; row < m->groups->n_attention; row = last + 1) {
        last = row;
        while (many && last + 1 < m->groups->n_attention && same_rows(m, row, last + 1))
            last++;
        snprintf(label, sizeof(label), last > row ? "ID %u-%u" : "ID %u", row, last);
        fprintf(stream, "%-14s", label);
        for (uint32_t c = from; c < to; c++) {
            const struct cell *cell = &m->cells[(size_t)row * m->columns + c];
            cell_text(m, cell, text);
            if (!width)
                fputc(letter_of(cell->name), stream);
            else
                fprintf(stream, "%s%-*s", c > from ? "  " : "", c + 1 < to ? width : 0, text);
        }
        fputc('\n', stream);
    }
}

static void print_names(const struct matrix *m, FILE *stream)
{
    int width = cell_width(m);
    char label[16];

    fprintf(stream, "\n%-14s", m->map->with_bytes ? "pushed/pulled" : "");
    for (uint32_t c = 0; c < m->columns; c++) {
        snprintf(label, sizeof(label), "ID %u", m->groups->n_attention + c);
        fprintf(stream, "%s%-*s", c ? "  " : "", c + 1 < m->columns ? width : 0, label);
    }
    fputc('\n', stream);
    print_rows(m, 0, m->columns, width, stream);
}

static void print_letters(const struct matrix *m, FILE *stream)
{
    fputc('\n', stream);
    for (uint8_t i = 1; i <= m->n_names; i++)
        fprintf(stream, "%c %s, ", letter_of(i), m->names[i - 1].name);
    fprintf(stream, "* several, . none\n");
    for (uint32_t from = 0; from < m->columns; from += STEPAF_MAP_LETTERS) {
        uint32_t to =
            m->columns - from > STEPAF_MAP_LETTERS ? from + STEPAF_MAP_LETTERS : m->columns;
        fprintf(stream, "\n%-14sID %u-%u\n", "", m->groups->n_attention + from,
                m->groups->n_attention + to - 1);
        print_rows(m, from, to, 0, stream);
    }
}

static void print_totals(const struct matrix *m, FILE *stream)
{
    char pushed[BYTES_MAX], pulled[BYTES_MAX];

    fputc('\n', stream);
    for (uint8_t i = 0; i < m->n_names; i++)
        fprintf(stream, "%s: %llu link%s, %s bytes pushed, %s pulled\n", m->names[i].name,
                (unsigned long long)m->names[i].links, m->names[i].links == 1 ? "" : "s",
                bytes_text(m->names[i].pushed, pushed), bytes_text(m->names[i].pulled, pulled));
}

static void print_refusals(const struct matrix *m, FILE *stream)
{
    for (uint32_t i = 0; i < m->n_refusals; i++) {
        const struct refusal *it = &m->refusals[i];
        fprintf(stream, "%s%s on %llu link%s (attention %u - FFN %u first) instead of %s\n",
                i ? "" : "\n", it->way->name, (unsigned long long)it->links,
                it->links == 1 ? "" : "s", it->attention, it->ffn, it->way->refused);
    }
    if (m->more_refusals)
        fprintf(stream, "and on %u links for other reasons\n", m->more_refusals);
}

bool stepaf_map_print_matrix(const struct stepaf_map *map, const struct stepaf_map_groups *groups,
                             FILE *stream)
{
    struct matrix *m = calloc(1, sizeof(*m));
    bool done = false;

    if (!m)
        return false;
    m->map = map;
    m->groups = groups;
    m->columns = groups->n - groups->n_attention;
    m->cells = calloc((size_t)groups->n_attention * m->columns + 1, sizeof(m->cells[0]));
    if (m->cells) {
        for (uint32_t r = 0; r < map->size; r++)
            count_part(m, &map->parts[r]);
        if (m->columns && m->columns <= STEPAF_MAP_COLUMNS)
            print_names(m, stream);
        else if (m->columns)
            print_letters(m, stream);
        if (map->with_bytes)
            print_totals(m, stream);
        print_refusals(m, stream);
        done = true;
    }
    free(m->cells);
    free(m);
    return done;
}
