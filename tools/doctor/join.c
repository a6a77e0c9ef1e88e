/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor in all ranks of a job: the first rank of each host runs the checks, every rank
 * sends its facts, and all derive the same findings, which rank 0 prints. */
#include "join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/status.h>

#define PATIENCE_US ((int64_t)120 * 1000000)

enum { PLACE = 256 };

static int has_one(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return 1;
    }
    return 0;
}

/* Whether the environment says that the ranks meet by themselves. */
static int meets(void)
{
    static const char *const signs[] = {"STEPAF_MEET", "STEPAF_LOCAL_SIZE", "TORCHELASTIC_RUN_ID"};

    return has_one(signs, sizeof signs / sizeof *signs);
}

int doctor_is_joined(void)
{
    static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                                        "MPI_LOCALRANKID"};

    return meets() || has_one(signs, sizeof signs / sizeof *signs);
}

/* One string from each rank. */
struct round {
    char *all;
    size_t *offsets;
    char **texts;
};

static void free_round(struct round *round, int size)
{
    for (int i = 0; round->texts && i < size; i++)
        free(round->texts[i]);
    free(round->texts);
    free(round->offsets);
    free(round->all);
    *round = (struct round){0};
}

static int gather(const stepaf_boot_t *boot, const char *text, struct round *round_p)
{
    size_t size = (size_t)boot->size;
    void *all = NULL;

    *round_p = (struct round){0};
    round_p->offsets = calloc(size + 1, sizeof *round_p->offsets);
    round_p->texts = calloc(size, sizeof *round_p->texts);
    if (!round_p->offsets || !round_p->texts ||
        boot->allgather(boot->self, text, strlen(text), &all, round_p->offsets, PATIENCE_US) !=
            STEPAF_OK) {
        fprintf(stderr, "stepaf_doctor: %s\n",
                round_p->texts ? stepaf_last_error()->text : "out of memory");
        return 0;
    }
    round_p->all = all;
    for (size_t i = 0; i < size; i++) {
        round_p->texts[i] = strndup(round_p->all + round_p->offsets[i],
                                    round_p->offsets[i + 1] - round_p->offsets[i]);
        if (!round_p->texts[i])
            return 0;
    }
    return 1;
}

/* The hosts of a job, numbered by their first ranks. */
struct hosts {
    int n;
    int *of_rank;
    int *first; /* first rank of each */
    const char **names;
    char list[DOCTOR_TEXT];
};

/* Ranks with the same host name under the same kernel are on one host. */
static int find_hosts(const struct round *places, int size, struct hosts *hosts)
{
    size_t used = 0;

    hosts->n = 0;
    hosts->of_rank = calloc((size_t)size, sizeof *hosts->of_rank);
    hosts->first = calloc((size_t)size, sizeof *hosts->first);
    hosts->names = calloc((size_t)size, sizeof *hosts->names);
    if (!hosts->of_rank || !hosts->first || !hosts->names)
        return 0;
    for (int i = 0; i < size; i++) {
        int k = 0;
        while (k < hosts->n && strcmp(places->texts[hosts->first[k]], places->texts[i]) != 0)
            k++;
        hosts->of_rank[i] = k;
        if (k == hosts->n)
            hosts->first[hosts->n++] = i;
    }
    /* The name is the first part of the compared text. */
    for (int i = 0; i < hosts->n; i++) {
        char *name = places->texts[hosts->first[i]];
        name[strcspn(name, "\t")] = '\0';
        doctor_clean(name);
        hosts->names[i] = name;
        if (used + strlen(name) + 24 < sizeof hosts->list)
            used += (size_t)snprintf(hosts->list + used, sizeof hosts->list - used, "%s%s",
                                     used ? ", " : "", name);
        else
            snprintf(hosts->list + used, sizeof hosts->list - used, " and %d more", hosts->n - i);
    }
    return hosts->n <= DOCTOR_HOSTS;
}

static void free_hosts(struct hosts *hosts)
{
    free(hosts->of_rank);
    free(hosts->first);
    free(hosts->names);
}

static void tell_place(const struct doctor *doctor, char *text, size_t capacity)
{
    char host[DOCTOR_HOST], kernel[DOCTOR_NAME];

    doctor_host(doctor, host, sizeof host);
    doctor_read(doctor, kernel, sizeof kernel, "/proc/sys/kernel/random/boot_id");
    snprintf(text, capacity, "%s\t%s", host, kernel);
}

/* Compare the facts of all ranks; returns false if memory runs out. */
static int compare_ranks(const stepaf_boot_t *boot, const struct hosts *hosts, const char *library,
                         struct doctor *doctor)
{
    struct doctor_facts *facts = calloc((size_t)boot->size, sizeof *facts);
    struct round round = {0};
    int done = 0;

    if (!facts)
        return 0;
    doctor_facts(doctor, library, &facts[0]);
    enum doctor_state differs[DOCTOR_FACTS];
    for (int i = 0; i < facts[0].n; i++)
        differs[i] = facts[0].fact[i].differs;
    int n = facts[0].n;
    char *text = doctor_pack_facts(&facts[0]);
    done = gather(boot, text, &round);
    free(text);
    for (int i = 0; done && i < boot->size; i++)
        doctor_unpack_facts(round.texts[i], strlen(round.texts[i]), &facts[i]);
    /* This version decides what a difference means; all ranks of one version decide the same. */
    for (int i = 0; done && i < facts[0].n && i < n; i++)
        facts[0].fact[i].differs = differs[i];
    doctor->check = doctor_find("same");
    if (done)
        doctor_compare(doctor, facts, boot->size, hosts->of_rank, hosts->names);
    free_round(&round, boot->size);
    free(facts);
    return done;
}

/* Pick the hosts' texts from the ranks' texts. */
static const char **of_hosts(const struct round *round, const struct hosts *hosts)
{
    const char **texts = calloc((size_t)hosts->n, sizeof *texts);

    for (int i = 0; texts && i < hosts->n; i++)
        texts[i] = round->texts[hosts->first[i]];
    return texts;
}

/* The first rank of each host tries the others. */
static int try_connections(const stepaf_boot_t *boot, const struct hosts *hosts,
                           struct doctor *doctor)
{
    int host = hosts->of_rank[boot->rank];
    int is_first = hosts->first[host] == boot->rank && !doctor_is_test(doctor);
    struct round places = {0}, results = {0};
    struct doctor_connect *connect = NULL;
    char text[1024] = "";
    char *result = NULL;

    if (is_first)
        connect = doctor_connect_begin(text, sizeof text);
    int done = gather(boot, text, &places);
    const char **texts = done ? of_hosts(&places, hosts) : NULL;
    if (connect && texts)
        result = doctor_connect_run(connect, host, hosts->n, texts);
    done = done && gather(boot, result ? result : "", &results);
    doctor_connect_end(connect);
    free(result);
    free(texts);
    texts = done ? of_hosts(&results, hosts) : NULL;
    doctor->check = doctor_find("connect");
    if (texts)
        doctor_connect_say(doctor, texts, hosts->n, hosts->names);
    free(texts);
    free_round(&places, boot->size);
    free_round(&results, boot->size);
    return done;
}

/* Merge the findings of all hosts. */
static int look_at_hosts(const stepaf_boot_t *boot, const struct hosts *hosts,
                         const struct doctor_task *task, struct doctor_merged *merged)
{
    struct doctor own = {.root = task->root};
    struct round round = {0};

    if (hosts->first[hosts->of_rank[boot->rank]] == boot->rank)
        doctor_run(&own, task->names, task->n_names);
    char *text = doctor_pack_findings(&own);
    int done = gather(boot, text, &round);
    free(text);
    free(own.findings);
    for (int i = 0; done && i < hosts->n; i++) {
        struct doctor one = {.root = ""};
        const char *said = round.texts[hosts->first[i]];
        doctor_unpack_findings(said, strlen(said), &one);
        doctor_merge(merged, &one, i);
        free(one.findings);
    }
    doctor_merge_end(merged, hosts->names);
    free_round(&round, boot->size);
    return done;
}

static int run(const stepaf_boot_t *boot, const struct doctor_task *task, const char *library)
{
    struct doctor probe = {.root = task->root};
    struct doctor_merged merged = {.all = {.root = task->root}};
    struct round places = {0};
    struct hosts hosts = {0};
    char place[PLACE];
    int done = 0;

    tell_place(&probe, place, sizeof place);
    if (!gather(boot, place, &places) || !find_hosts(&places, boot->size, &hosts))
        goto out;
    merged.n_hosts = hosts.n;
    if (!look_at_hosts(boot, &hosts, task, &merged))
        goto out;
    done = 1;
    if (doctor_named(doctor_find("same"), task->names, task->n_names))
        done = compare_ranks(boot, &hosts, library, &merged.all);
    if (done && doctor_named(doctor_find("connect"), task->names, task->n_names) && hosts.n > 1)
        done = try_connections(boot, &hosts, &merged.all);
    struct doctor_about about = {
        .hosts = hosts.list, .n_hosts = hosts.n, .n_ranks = boot->size, .with_all = task->with_all};
    if (done && boot->rank == 0)
        done =
            task->is_json ? doctor_json(&merged.all, &about) : doctor_report(&merged.all, &about);
    done = done && doctor_count(&merged.all, DOCTOR_FAILED) == 0;
out:
    free(merged.all.findings);
    free_hosts(&hosts);
    free_round(&places, boot->size);
    return !done;
}

int doctor_run_joined(const struct doctor_task *task)
{
    char library[128] = "";
    stepaf_boot_t boot;

    if (!meets()) {
        if (!doctor_open_mpi(&boot, library, sizeof library))
            return 1;
    } else if (stepaf_boot_open(&boot) != STEPAF_OK) {
        fprintf(stderr, "stepaf_doctor: %s\n", stepaf_last_error()->text);
        return 2;
    }
    int code = run(&boot, task, library);
    if (boot.close)
        boot.close(boot.self);
    return code;
}
