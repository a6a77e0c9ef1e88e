/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "launcher.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fail.h"
#include "probe.h"

enum { PROBE_TIMEOUT_MS = 10000, SAID_MAX = 8192 };

/* The answers of launchers to the question for their version. */
struct sign {
    const char *text;
    enum run_launcher_kind kind;
};

static const struct sign signs[] = {
    {"Open MPI", RUN_OPENMPI},   {"OpenRTE", RUN_OPENMPI}, {"PRRTE", RUN_OPENMPI},
    {"Intel(R) MPI", RUN_INTEL}, {"HYDRA", RUN_HYDRA},
};

/* Names of launchers, best first: the launcher of the MPI of this build starts that MPI's
 * programs, while mpirun may belong to another MPI. Only the version identifies a launcher. */
static const char *const programs[] = {STEPAF_MPIEXEC_NAME, "mpirun", "mpiexec", "mpiexec.hydra",
                                       "orterun"};

/* What a word of --launcher admits. */
struct rule {
    const char *word;
    int slurm;     /* srun, if there is an allocation */
    int must_srun; /* srun, even without one */
    int openmpi;
    int hydra; /* Intel's as well */
};

static const struct rule rules[] = {
    {"auto", 1, 0, 1, 1},  {"mpirun", 0, 0, 1, 1}, {"openmpi", 0, 0, 1, 0},
    {"hydra", 0, 0, 0, 1}, {"slurm", 1, 1, 0, 0},
};

static const struct rule *find_rule(const char *word)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        if (strcmp(rules[i].word, word) == 0)
            return &rules[i];
    return NULL;
}

/* Get the first line that is not blank, for a message. */
static const char *first_line(char *text)
{
    text += strspn(text, " \t\n");
    text[strcspn(text, "\n")] = '\0';
    return *text ? text : "nothing";
}

/* Ask @a program for its identity. Returns -1 with a sentence; 1, also with a sentence, if there
 * is no such program. */
static int ask_version(const char *program, const struct rule *rule,
                       struct run_launcher *launcher_p)
{
    char said[SAID_MAX];
    char *const argv[] = {(char *)program, (char *)"--version", NULL};
    int code = run_probe(argv, PROBE_TIMEOUT_MS, said, sizeof(said));

    if (code < 0) {
        int is_absent = errno == ENOENT;
        run_fail_set("cannot run %s: %s", program,
                     errno == ETIMEDOUT ? "it does not report its version" : strerror(errno));
        return is_absent ? 1 : -1;
    }
    for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
        if (!strstr(said, signs[i].text))
            continue;
        if (signs[i].kind == RUN_OPENMPI ? !rule->openmpi : !rule->hydra)
            return run_fail("%s is another kind of launcher", program);
        launcher_p->kind = signs[i].kind;
        snprintf(launcher_p->program, sizeof(launcher_p->program), "%s", program);
        snprintf(launcher_p->reason, sizeof(launcher_p->reason), "%s --version says %s", program,
                 signs[i].text);
        return 0;
    }
    return run_fail("%s is not a supported launcher: with --version it prints: %.200s", program,
                    first_line(said));
}

/* Whether @a word is a better plugin than @a best, which may be "": pmix, then its newest
 * version, then pmi2, which works for MPICH. */
static int is_better(const char *word, const char *best)
{
    if (strcmp(best, "pmix") == 0)
        return 0;
    if (strcmp(word, "pmi2") == 0)
        return *best == '\0';
    return strcmp(word, "pmix") == 0 ||
           (strncmp(word, "pmix_v", 6) == 0 && (*best != 'p' || strcmp(word, best) > 0));
}

int run_launcher_pick_mpi(const char *list, char *mpi_p)
{
    static const char blanks[] = " \t\r\n,";
    char best[64] = "";

    for (list += strspn(list, blanks); *list; list += strspn(list, blanks)) {
        char word[64];
        size_t bytes = strcspn(list, blanks);
        if (bytes < sizeof(word)) {
            memcpy(word, list, bytes);
            word[bytes] = '\0';
            if (is_better(word, best))
                memcpy(best, word, sizeof(best));
        }
        list += bytes;
    }
    if (!*best)
        return -1;
    memcpy(mpi_p, best, sizeof(best));
    return 0;
}

/* Whether the user has named a plugin, which is then used unchecked. */
static int passes_mpi(const struct run_options *options)
{
    for (int i = 0; i < options->pass.n; i++)
        if (strcmp(options->pass.word[i], "--mpi") == 0 ||
            strncmp(options->pass.word[i], "--mpi=", 6) == 0)
            return 1;
    return 0;
}

/* A line that is only shown may be for another machine, whose srun has the common plugins. */
static void assume_pmix(const char *why, struct run_launcher *launcher_p)
{
    snprintf(launcher_p->mpi, sizeof(launcher_p->mpi), "pmix");
    snprintf(launcher_p->doubt, sizeof(launcher_p->doubt),
             "%s; --mpi=pmix is a guess, --pass=--mpi=PLUGIN overrides it", why);
}

static int ask_srun(const struct run_options *options, const char *job, int is_asked_for,
                    struct run_launcher *launcher_p)
{
    char said[SAID_MAX] = "";
    char *const argv[] = {(char *)"srun", (char *)"--mpi=list", NULL};
    int code = 0;

    if (!passes_mpi(options))
        code = run_probe(argv, PROBE_TIMEOUT_MS, said, sizeof(said));
    if (code < 0 && errno == ENOENT)
        return run_fail("%s%s, and there is no srun: install slurm-client",
                        job ? "this process is in Slurm's job " : "Slurm is asked for",
                        job ? job : "");
    launcher_p->mpi[0] = '\0';
    if (code != 0) {
        run_fail_set("srun --mpi=list has failed (%s): %.300s",
                     code < 0 ? strerror(errno) : "see its message", first_line(said));
        if (!options->dry_run || !is_asked_for)
            return -1;
        assume_pmix(run_fail_text(), launcher_p);
    } else if (!passes_mpi(options) && run_launcher_pick_mpi(said, launcher_p->mpi) != 0) {
        for (char *c = said; *c; c++)
            *c = *c == '\n' || *c == '\t' ? ' ' : *c;
        return run_fail("srun has no plugin that MPI can start with, neither pmix nor pmi2 "
                        "(install slurm-wlm-basic-plugins and libpmix-dev): srun --mpi=list says: "
                        "%.200s",
                        first_line(said));
    }
    launcher_p->kind = RUN_SLURM;
    snprintf(launcher_p->program, sizeof(launcher_p->program), "srun");
    snprintf(launcher_p->reason, sizeof(launcher_p->reason), "%s%s",
             job ? "this process is in Slurm's job " : "Slurm is asked for", job ? job : "");
    return 0;
}

/* Find the first name in PATH whose version is what @a rule wants. */
static int ask_all(const struct rule *rule, struct run_launcher *launcher_p)
{
    char found[RUN_FAIL_MAX] = "";

    for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
        if (i > 0 && !strcmp(programs[i], programs[0]))
            continue;
        int rc = ask_version(programs[i], rule, launcher_p);
        if (rc == 0)
            return 0;
        if (!*found && rc < 0)
            snprintf(found, sizeof(found), "; %.250s", run_fail_text());
    }
    if (!rule->openmpi || !rule->hydra)
        return run_fail("there is no mpirun of %s in PATH: install %s%s",
                        rule->openmpi ? "Open MPI" : "MPICH or Intel MPI",
                        rule->openmpi ? "openmpi-bin" : "mpich", found);
    return run_fail("no launcher is here, neither mpirun nor a Slurm job: install openmpi-bin "
                    "or mpich, or use --slurm%s",
                    found);
}

int run_launcher_find(const struct run_options *options, char *const *environment,
                      struct run_launcher *launcher_p)
{
    static const struct rule any = {"path", 0, 0, 1, 1};
    const char *job = run_env_get(environment, "SLURM_JOB_ID");
    const char *word = options->launcher ? options->launcher : "auto";
    const struct rule *rule = find_rule(options->slurm ? "slurm" : word);
    char why[RUN_FAIL_MAX];

    *launcher_p = (struct run_launcher){0};
    if (strcmp(word, "ssh") == 0 && !options->slurm) {
        *launcher_p =
            (struct run_launcher){.kind = RUN_SSH, .program = "ssh", .reason = "ssh is asked for"};
        return 0;
    }
    if (!rule && strchr(word, '/'))
        return ask_version(word, &any, launcher_p) == 0 ? 0 : -1;
    if (!rule)
        return run_fail(
            "--launcher %s: it takes auto, mpirun, openmpi, hydra, slurm, ssh, or a path", word);
    if (!rule->slurm || (!job && !rule->must_srun))
        return ask_all(rule, launcher_p);
    if (ask_srun(options, job, rule->must_srun, launcher_p) == 0)
        return 0;
    if (rule->must_srun)
        return -1;
    /* In an allocation an mpirun serves too; if there is none, srun's reason is reported. */
    snprintf(why, sizeof(why), "%s", run_fail_text());
    if (ask_all(rule, launcher_p) != 0)
        return run_fail("%s", why);
    snprintf(launcher_p->reason, sizeof(launcher_p->reason), "%.250s", why);
    return 0;
}
