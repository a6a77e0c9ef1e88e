/* SPDX-License-Identifier: Apache-2.0 */
/* The text that ranks exchange: lines of tab-separated fields. A rank may be of another version,
 * so that lines that make no sense here are ignored. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "join.h"

enum { FIELDS = 4 };

static char *new_text(size_t capacity)
{
    char *text = malloc(capacity);

    if (!text) {
        fputs("stepaf_doctor: out of memory\n", stderr);
        exit(1);
    }
    *text = '\0';
    return text;
}

char *doctor_pack_facts(const struct doctor_facts *facts)
{
    size_t used = 0, capacity = sizeof *facts + 16 * (size_t)facts->n + 1;
    char *text = new_text(capacity);

    for (int i = 0; i < facts->n; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s\t%s\n", facts->fact[i].name,
                                 facts->fact[i].value);
    return text;
}

char *doctor_pack_findings(const struct doctor *doctor)
{
    size_t used = 0, capacity = doctor->n * (sizeof *doctor->findings + 64) + 1;
    char *text = new_text(capacity);

    for (size_t i = 0; i < doctor->n; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        used +=
            (size_t)snprintf(text + used, capacity - used, "%s\t%d\t%s\t%s\n", finding->check->name,
                             (int)finding->state, finding->what, finding->mend);
    }
    return text;
}

/* Call @a take with the fields of each complete line; missing fields are "". */
static void read_lines(const char *text, size_t bytes, void (*take)(char **fields, void *arg),
                       void *arg)
{
    char *copy = new_text(bytes + 1);

    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    for (char *line, *rest = copy; (line = strsep(&rest, "\n")) && rest;) {
        char *fields[FIELDS];
        for (int i = 0; i < FIELDS; i++) {
            char *field = line ? strsep(&line, "\t") : NULL;
            fields[i] = field ? field : copy + bytes;
            doctor_clean(fields[i]);
        }
        take(fields, arg);
    }
    free(copy);
}

static void take_fact(char **fields, void *arg)
{
    struct doctor_facts *facts = arg;

    if (facts->n == DOCTOR_FACTS)
        return;
    struct doctor_fact *fact = &facts->fact[facts->n++];
    snprintf(fact->name, sizeof fact->name, "%s", fields[0]);
    snprintf(fact->value, sizeof fact->value, "%s", fields[1]);
}

void doctor_unpack_facts(const char *text, size_t bytes, struct doctor_facts *facts_p)
{
    facts_p->n = 0;
    read_lines(text, bytes, take_fact, facts_p);
}

static void take_finding(char **fields, void *arg)
{
    const struct doctor_check *check = doctor_find(fields[0]);
    long long state;

    if (!check || !doctor_parse(fields[1], &state) || state < 0 || state >= DOCTOR_STATES)
        return;
    struct doctor_finding *finding = doctor_add(arg, check);
    finding->state = (enum doctor_state)state;
    snprintf(finding->what, sizeof finding->what, "%s", fields[2]);
    snprintf(finding->mend, sizeof finding->mend, "%s", fields[3]);
}

void doctor_unpack_findings(const char *text, size_t bytes, struct doctor *doctor)
{
    read_lines(text, bytes, take_finding, doctor);
}

void doctor_merge(struct doctor_merged *merged, const struct doctor *one, int host)
{
    size_t row = (size_t)merged->n_hosts;

    for (size_t i = 0; i < one->n; i++) {
        const struct doctor_finding *finding = &one->findings[i];
        struct doctor_finding *all = merged->all.findings;
        size_t k = 0;
        while (k < merged->all.n &&
               (all[k].check != finding->check || all[k].state != finding->state ||
                strcmp(all[k].what, finding->what) != 0))
            k++;
        if (k == merged->all.n) {
            *doctor_add(&merged->all, finding->check) = *finding;
            unsigned char *on = realloc(merged->on, merged->all.n * row);
            if (!on) {
                fputs("stepaf_doctor: out of memory\n", stderr);
                exit(1);
            }
            memset(on + k * row, 0, row);
            merged->on = on;
        }
        merged->on[k * row + (size_t)host] = 1;
    }
}

/* Write a list of hosts, which may end in the number of further ones. */
static void name_hosts(const unsigned char *on, const char *const *hosts, int n_hosts, char *text,
                       size_t capacity)
{
    size_t used = 0;
    int more = 0;

    *text = '\0';
    for (int i = 0; i < n_hosts; i++) {
        if (!on[i])
            continue;
        if (used + strlen(hosts[i]) + 24 > capacity)
            more++;
        else
            used +=
                (size_t)snprintf(text + used, capacity - used, "%s%s", used ? ", " : "", hosts[i]);
    }
    if (more)
        snprintf(text + used, capacity - used, " and %d more", more);
}

static int compare_findings(const void *one, const void *other)
{
    const struct doctor_finding *a = one, *b = other;

    return a->check != b->check ? (a->check > b->check) - (a->check < b->check)
                                : strcmp(a->where, b->where);
}

void doctor_merge_end(struct doctor_merged *merged, const char *const *hosts)
{
    for (size_t i = 0; i < merged->all.n; i++) {
        const unsigned char *on = merged->on + i * (size_t)merged->n_hosts;
        int is_all = 1;
        for (int k = 0; k < merged->n_hosts; k++)
            is_all &= on[k];
        if (!is_all)
            name_hosts(on, hosts, merged->n_hosts, merged->all.findings[i].where, DOCTOR_TEXT);
    }
    free(merged->on);
    if (merged->all.n)
        qsort(merged->all.findings, merged->all.n, sizeof *merged->all.findings, compare_findings);
}
