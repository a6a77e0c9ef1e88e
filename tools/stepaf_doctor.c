/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_doctor: checks whether this machine, and the machines of a job, are fit for the
 * library. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <stepaf/version.h>

#include "doctor/doctor.h"
#include "doctor/join.h"
#include "step.h"

enum { OPTION_JSON = 256, OPTION_LIST, OPTION_ROOT, OPTION_VERSION, NAMES_MAX = 64 };

struct arguments {
    struct doctor_task task;
    const char *names[NAMES_MAX];
    int is_list;
    int is_version;
};

static const struct argp_option options[] = {
    {"all", 'a', NULL, 0, "Explain why a check matters also for checks that have passed", 0},
    {"json", OPTION_JSON, NULL, 0, "One JSON object, and nothing else", 0},
    {"list", OPTION_LIST, NULL, 0, "List all checks: group, name, and why it matters", 0},
    {"root", OPTION_ROOT, "DIR", 0,
     "Read /proc, /sys and /dev below DIR, and try nothing: for files of another machine, and "
     "tests",
     0},
    {"version", OPTION_VERSION, NULL, 0, "Show the version", 0},
    {0},
};

static int is_known(const char *name)
{
    for (const struct doctor_check *check = doctor_checks; check->name; check++)
        if (strcmp(check->name, name) == 0 || strcmp(check->group, name) == 0)
            return 1;
    return 0;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    struct stat status;

    switch (key) {
    case 'a':
        arguments->task.with_all = 1;
        return 0;
    case OPTION_JSON:
        arguments->task.is_json = 1;
        return 0;
    case OPTION_LIST:
        arguments->is_list = 1;
        return 0;
    case OPTION_ROOT:
        if (!*text)
            argp_error(state, "--root '' is not a directory");
        if (stat(text, &status) != 0)
            argp_error(state, "--root %s: %s", text, strerror(errno));
        if (!S_ISDIR(status.st_mode))
            argp_error(state, "--root %s is not a directory", text);
        arguments->task.root = text;
        return 0;
    case OPTION_VERSION:
        arguments->is_version = 1;
        return 0;
    case ARGP_KEY_ARG:
        if (!is_known(text))
            argp_error(state, "'%s' is neither a check nor a group of checks: see --list", text);
        if (arguments->task.n_names == NAMES_MAX)
            argp_error(state, "more than %d names", NAMES_MAX);
        arguments->names[arguments->task.n_names++] = text;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse_option,
    .args_doc = "[CHECK|GROUP]...",
    .doc = "Check whether this machine is fit for libstepaf, and print what to do where it is not. "
           "Under a launcher (mpirun, srun --mpi=pmix, STEPAF_MEET), check all hosts, differences "
           "between ranks, and whether the hosts reach each other.\vExit status: 0 if nothing has "
           "failed, "
           "1 if something has, 2 if the options are wrong.",
};

/* A check that needs several ranks is not skipped silently where it is requested by name, or srun
 * has started several processes. */
static void say_alone(struct doctor *doctor, const struct doctor_task *task)
{
    for (const struct doctor_check *check = doctor_checks; check->name; check++) {
        long n = strcmp(check->name, "same") == 0 ? step_strangers() : 0;
        if (check->look || !doctor_named(check, task->names, task->n_names) ||
            (!n && !task->n_names))
            continue;
        doctor->check = check;
        if (n) {
            doctor_say(doctor, DOCTOR_UNKNOWN,
                       "srun has started %ld processes (SLURM_STEP_NUM_TASKS), but none finds the "
                       "others: each checks its host alone",
                       n);
            doctor_mend(doctor, "srun --mpi=pmix stepaf_doctor");
        } else {
            doctor_say(doctor, DOCTOR_UNKNOWN, "it takes several ranks");
            doctor_mend(doctor, "mpirun -n 2 stepaf_doctor   # or srun --mpi=pmix, or STEPAF_MEET");
        }
    }
}

static int run_alone(const struct doctor_task *task)
{
    struct doctor doctor = {.root = task->root};
    char host[DOCTOR_HOST];
    struct doctor_about about = {.hosts = host, .n_hosts = 1, .with_all = task->with_all};

    doctor_host(&doctor, host, sizeof host);
    doctor_run(&doctor, task->names, task->n_names);
    say_alone(&doctor, task);
    int done = task->is_json ? doctor_json(&doctor, &about) : doctor_report(&doctor, &about);
    int failed = doctor_count(&doctor, DOCTOR_FAILED) > 0;
    free(doctor.findings);
    return failed || !done;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.task = {.root = ""}};

    arguments.task.names = arguments.names;
    argp_err_exit_status = 2;
    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return 2;
    if (arguments.is_version) {
        printf("stepaf %s\n", stepaf_version());
        return !doctor_flush();
    }
    if (arguments.is_list) {
        doctor_print_list();
        return !doctor_flush();
    }
    if (doctor_is_joined())
        return doctor_run_joined(&arguments.task);
    return run_alone(&arguments.task);
}
