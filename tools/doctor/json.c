/* SPDX-License-Identifier: Apache-2.0 */
/* The findings in JSON, for programs. */
#include <stdio.h>

#include <jansson.h>

#include <stepaf/version.h>

#include "doctor.h"

int doctor_json(const struct doctor *doctor, const struct doctor_about *about)
{
    json_t *findings = json_array();

    for (size_t i = 0; i < doctor->n; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        json_array_append_new(
            findings,
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "check", finding->check->name, "group",
                      finding->check->group, "state", doctor_state_name(finding->state), "found",
                      finding->what, "why", finding->check->why, "mend", finding->mend, "hosts",
                      *finding->where ? finding->where : about->hosts));
    }
    json_t *all = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:o}", "version", stepaf_version(),
                            "hosts", about->hosts, "ranks", about->n_ranks, "passed",
                            (int)doctor_count(doctor, DOCTOR_PASSED), "warned",
                            (int)doctor_count(doctor, DOCTOR_WARNED), "failed",
                            (int)doctor_count(doctor, DOCTOR_FAILED), "unknown",
                            (int)doctor_count(doctor, DOCTOR_UNKNOWN), "findings", findings);
    int done = all && json_dumpf(all, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;

    if (!all)
        fputs("stepaf_doctor: --json: out of memory\n", stderr);
    json_decref(all);
    return doctor_flush() && done;
}
