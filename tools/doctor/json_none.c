/* SPDX-License-Identifier: Apache-2.0 */
/* Without jansson in the build there is no JSON output. */
#include <stdio.h>

#include "doctor.h"

int doctor_json(const struct doctor *doctor, const struct doctor_about *about)
{
    (void)doctor;
    (void)about;
    fputs("stepaf_doctor: --json requires jansson, which this build lacks\n", stderr);
    return 0;
}
