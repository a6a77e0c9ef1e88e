/* SPDX-License-Identifier: Apache-2.0 */
/* Findings for people: a line each, and for those that have not passed the reason and the
 * remedy. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "doctor.h"

size_t doctor_count(const struct doctor *doctor, enum doctor_state state)
{
    size_t n = 0;

    for (size_t i = 0; i < doctor->n; i++)
        n += doctor->findings[i].state == state;
    return n;
}

static void print_finding(const struct doctor_finding *finding, int with_all)
{
    const struct doctor_check *check = finding->check;

    printf("%-8s %-11s%s%s%s%s\n", doctor_state_name(finding->state), check->name,
           *finding->where ? "[" : "", finding->where, *finding->where ? "] " : "", finding->what);
    /* A missing device needs no remedy. */
    if (with_all || finding->state == DOCTOR_WARNED || finding->state == DOCTOR_FAILED ||
        (finding->state == DOCTOR_UNKNOWN && *finding->mend))
        printf("         why:  %s\n", check->why);
    if (*finding->mend)
        printf("         mend: %s\n", finding->mend);
}

int doctor_report(const struct doctor *doctor, const struct doctor_about *about)
{
    const char *group = "";

    if (about->n_ranks)
        printf("%d ranks on %d host%s: %s\n", about->n_ranks, about->n_hosts,
               about->n_hosts == 1 ? "" : "s", about->hosts);
    for (size_t i = 0; i < doctor->n; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        if (strcmp(group, finding->check->group) != 0)
            printf("%s%s:\n", i || about->n_ranks ? "\n" : "", group = finding->check->group);
        print_finding(finding, about->with_all);
    }
    printf("\n%zu passed, %zu warned, %zu failed, %zu unknown\n",
           doctor_count(doctor, DOCTOR_PASSED), doctor_count(doctor, DOCTOR_WARNED),
           doctor_count(doctor, DOCTOR_FAILED), doctor_count(doctor, DOCTOR_UNKNOWN));
    return doctor_flush();
}

int doctor_flush(void)
{
    int done = fflush(stdout) == 0;
    int error = errno;

    if (done && !ferror(stdout))
        return 1;
    fprintf(stderr, "stepaf_doctor: standard output: %s\n",
            done ? "could not be written completely" : strerror(error));
    return 0;
}

void doctor_print_list(void)
{
    for (const struct doctor_check *check = doctor_checks; check->name; check++)
        printf("%-8s %-11s%s\n", check->group, check->name, check->why);
}
