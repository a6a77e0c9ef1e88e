/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about this process and its kernel that several checks need. */
#include <stdio.h>
#include <stdlib.h>

#include <stepaf/status.h>

#include "doctor.h"

int doctor_has_capability(const struct doctor *doctor, int capability)
{
    char text[64];
    char *end;

    if (!doctor_read_field(doctor, text, sizeof text, "/proc/self/status", "CapEff"))
        return -1;
    unsigned long long set = strtoull(text, &end, 16);
    return end == text || *end ? -1 : (int)(set >> capability & 1);
}

int doctor_cpus(const struct doctor *doctor, struct stepaf_cpus *cpus_p)
{
    char text[4096];

    return doctor_read_field(doctor, text, sizeof text, "/proc/self/status", "Cpus_allowed_list") &&
           stepaf_cpus_parse(text, cpus_p) && stepaf_cpus_count(cpus_p) > 0;
}

int doctor_kernel_at_least(const struct doctor *doctor, int major, int minor)
{
    char text[128];
    unsigned is_major, is_minor;

    if (doctor_read(doctor, text, sizeof text, "/proc/sys/kernel/osrelease") <= 0 ||
        sscanf(text, "%3u.%3u", &is_major, &is_minor) != 2)
        return -1;
    return is_major > (unsigned)major ||
           (is_major == (unsigned)major && is_minor >= (unsigned)minor);
}

static const char *get_setting(const char *name, void *arg)
{
    (void)arg;
    return getenv(name);
}

int doctor_load_settings(struct stepaf_env *env_p)
{
    *env_p = (struct stepaf_env){0};
    return stepaf_env_load_from(env_p, get_setting, NULL) == STEPAF_OK;
}

/* Report unknown settings; return how many there are. */
static int tell_unknown_settings(struct doctor *doctor)
{
    char name[STEPAF_ENV_UNKNOWN_MAX];
    int n = 0;

    for (int at = 0; (at = stepaf_env_next_unknown(at, name)) != 0; n++) {
        doctor_clean(name);
        doctor_say(doctor, DOCTOR_WARNED, "%s is set, but is not a setting of the library", name);
        doctor_mend(doctor, "unset %s   # stepaf_info -f lists all settings", name);
    }
    return n;
}

void doctor_look_settings(struct doctor *doctor)
{
    struct stepaf_env env;
    int unknown = tell_unknown_settings(doctor);
    int n = 0;

    if (!doctor_load_settings(&env)) {
        doctor_say(doctor, DOCTOR_FAILED, "%s", stepaf_last_error()->text);
        return;
    }
    for (int i = 0; i < STEPAF_ENV_COUNT; i++)
        n += env.from_environment[i];
    if (!unknown)
        doctor_say(doctor, DOCTOR_PASSED, "%d are set, and none has a bad value", n);
    stepaf_env_free(&env);
}

void doctor_host(const struct doctor *doctor, char *name, size_t capacity)
{
    if (doctor_read(doctor, name, capacity, "/proc/sys/kernel/hostname") <= 0)
        snprintf(name, capacity, "unknown");
    doctor_clean(name);
}
