/* SPDX-License-Identifier: Apache-2.0 */
/* Recording of findings by checks. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

const char *doctor_state_name(enum doctor_state state)
{
    static const char *const names[DOCTOR_STATES] = {"passed", "warned", "failed", "unknown"};

    return names[state];
}

void doctor_clean(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

struct doctor_finding *doctor_add(struct doctor *doctor, const struct doctor_check *check)
{
    struct doctor_finding *finding;
    struct doctor_finding *more =
        realloc(doctor->findings, (doctor->n + 1) * sizeof *doctor->findings);

    if (!more) {
        fputs("stepaf_doctor: out of memory\n", stderr);
        exit(1);
    }
    doctor->findings = more;
    finding = &more[doctor->n++];
    memset(finding, 0, sizeof *finding);
    finding->check = check;
    finding->state = DOCTOR_UNKNOWN;
    return finding;
}

void doctor_say(struct doctor *doctor, enum doctor_state state, const char *format, ...)
{
    struct doctor_finding *finding = doctor_add(doctor, doctor->check);
    va_list args;

    finding->state = state;
    va_start(args, format);
    vsnprintf(finding->what, sizeof finding->what, format, args);
    va_end(args);
    doctor_clean(finding->what);
    if (state != DOCTOR_PASSED)
        snprintf(finding->mend, sizeof finding->mend, "%s", doctor->check->mend);
}

void doctor_say_cut(struct doctor *doctor, const struct doctor_names *names, const char *what)
{
    if (!names->n_cut)
        return;
    doctor_say(doctor, DOCTOR_UNKNOWN, "%zu %s, of which only %zu were checked",
               names->n + names->n_cut, what, names->n);
    doctor_mend(doctor, "%s", "");
}

void doctor_mend(struct doctor *doctor, const char *format, ...)
{
    struct doctor_finding *finding = &doctor->findings[doctor->n - 1];
    va_list args;

    va_start(args, format);
    vsnprintf(finding->mend, sizeof finding->mend, format, args);
    va_end(args);
    doctor_clean(finding->mend);
}
