/* SPDX-License-Identifier: Apache-2.0 */
/* In builds without jansson nothing is said in JSON. */
#include <stdio.h>

#include "doctor.h"

int doctor_json(const struct doctor *doctor, const struct doctor_about *about)
{
    (void)doctor;
    (void)about;
    fputs("stepaf_doctor: --json takes jansson, which this build is without\n", stderr);
    return 0;
}
