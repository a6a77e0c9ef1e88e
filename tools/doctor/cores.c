/* SPDX-License-Identifier: Apache-2.0 */
/* The cores that this process may run on, and what prevents them from running at the same time
 * and at full speed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

#define CPU "/sys/devices/system/cpu"

void doctor_look_cores(struct doctor *doctor)
{
    struct stepaf_cpus cpus, online;
    char list[128], text[4096];

    if (!doctor_cpus(doctor, &cpus)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "/proc/self/status does not say which");
        return;
    }
    int n = stepaf_cpus_count(&cpus);
    stepaf_cpus_format(&cpus, list, sizeof list);
    if (doctor_read(doctor, text, sizeof text, CPU "/online") <= 0 ||
        !stepaf_cpus_parse(text, &online))
        doctor_say(doctor, n == 1 ? DOCTOR_WARNED : DOCTOR_UNKNOWN,
                   "%s; the machine's cores cannot be read", list);
    else
        doctor_say(doctor, n == 1 ? DOCTOR_WARNED : DOCTOR_PASSED, "%d of the machine's %d: %s", n,
                   stepaf_cpus_count(&online), list);
}

/* Return the quota of one group in thousandths of a CPU; 0: none, -1: unreadable. */
static long long one_quota(const struct doctor *doctor, int level, const char *text)
{
    long long quota, period;
    char period_text[64], unused[8];

    if (!*text || strncmp(text, "max", 3) == 0 || strcmp(text, "-1") == 0)
        return 0;
    int n = sscanf(text, "%15lld %15lld%1s", &quota, &period, unused);
    if (n == 1 && (doctor_read_cgroup(doctor, "cpu", level, "cpu.cfs_period_us", "cpu.max",
                                      period_text, sizeof period_text) <= 0 ||
                   sscanf(period_text, "%15lld%1s", &period, unused) != 1))
        return -1;
    if (n < 1 || n > 2 || quota <= 0 || period <= 0 || quota > 1LL << 40)
        return -1;
    long long thousandths = quota * 1000 / period;
    return thousandths > 0 ? thousandths : 1;
}

/* Return the smallest quota of the group and those above it; 0: none, -1: unreadable. */
static long long least_quota(const struct doctor *doctor)
{
    long long least = 0;

    for (int level = 0;; level++) {
        char text[64];
        int more = doctor_read_cgroup(doctor, "cpu", level, "cpu.cfs_quota_us", "cpu.max", text,
                                      sizeof text);
        long long quota = more > 0 ? one_quota(doctor, level, text) : more;
        if (quota < 0)
            return -1;
        if (!more)
            return least;
        if (quota > 0 && (!least || quota < least))
            least = quota;
    }
}

/* Report how often the process's own group was throttled. */
static void say_throttled(struct doctor *doctor)
{
    char text[1024];
    long long times;
    const char *found;

    if (doctor_read_cgroup(doctor, "cpu", 0, "cpu.stat", "cpu.stat", text, sizeof text) > 0 &&
        (found = strstr(text, "nr_throttled ")) &&
        sscanf(found, "nr_throttled %15lld", &times) == 1 && times > 0)
        doctor_say(doctor, DOCTOR_WARNED, "its quota has stopped this group %lld times so far",
                   times);
}

void doctor_look_quota(struct doctor *doctor)
{
    struct stepaf_cpus cpus;
    int n = doctor_cpus(doctor, &cpus) ? stepaf_cpus_count(&cpus) : 0;
    long long quota = least_quota(doctor);

    if (quota < 0)
        doctor_say(doctor, DOCTOR_UNKNOWN, "the control group cannot be read");
    else if (quota == 0)
        doctor_say(doctor, DOCTOR_PASSED, "none in the visible control groups");
    else if (quota < 1000)
        doctor_say(doctor, DOCTOR_FAILED, "%lld.%03lld processors: less than one", quota / 1000,
                   quota % 1000);
    else if (!n)
        doctor_say(doctor, DOCTOR_UNKNOWN,
                   "%lld.%03lld processors; the number of cores is not known", quota / 1000,
                   quota % 1000);
    else
        doctor_say(doctor, quota < n * 1000LL ? DOCTOR_WARNED : DOCTOR_PASSED,
                   "%lld.%03lld processors for %d cores", quota / 1000, quota % 1000, n);
    if (quota > 0)
        say_throttled(doctor);
}

void doctor_look_isolated(struct doctor *doctor)
{
    struct stepaf_cpus cpus, isolated;
    char text[4096];
    int both = 0;

    if (doctor_read(doctor, text, sizeof text, CPU "/isolated") < 0 ||
        !doctor_cpus(doctor, &cpus)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "it cannot be read");
        return;
    }
    if (!*text) {
        doctor_say(doctor, DOCTOR_PASSED, "none: jitter tells what that costs");
        return;
    }
    if (!stepaf_cpus_parse(text, &isolated)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "not a list of cores: %.40s", text);
        return;
    }
    for (int cpu = stepaf_cpus_next(&cpus, 0); cpu >= 0; cpu = stepaf_cpus_next(&cpus, cpu + 1))
        both += stepaf_cpus_next(&isolated, cpu) == cpu;
    if (both > 1)
        doctor_say(doctor, DOCTOR_WARNED,
                   "%d of this process's cores are isolated: all its threads stay on one of them",
                   both);
    else
        doctor_say(doctor, DOCTOR_PASSED, "cores %.60s, of which this process has %d", text, both);
}

void doctor_look_smt(struct doctor *doctor)
{
    struct stepaf_cpus cpus, siblings;
    char text[256];
    int shared = 0;

    if (!doctor_cpus(doctor, &cpus)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "this process's cores are not known");
        return;
    }
    for (int cpu = stepaf_cpus_next(&cpus, 0); cpu >= 0; cpu = stepaf_cpus_next(&cpus, cpu + 1)) {
        if (doctor_read(doctor, text, sizeof text, CPU "/cpu%d/topology/thread_siblings_list",
                        cpu) <= 0 ||
            !stepaf_cpus_parse(text, &siblings)) {
            doctor_say(doctor, DOCTOR_UNKNOWN, "core %d: its siblings cannot be read", cpu);
            return;
        }
        for (int other = stepaf_cpus_next(&siblings, 0); other >= 0;
             other = stepaf_cpus_next(&siblings, other + 1))
            if (other != cpu && stepaf_cpus_next(&cpus, other) == other) {
                shared++;
                break;
            }
    }
    if (shared)
        doctor_say(doctor, DOCTOR_WARNED,
                   "%d of this process's logical CPUs share a physical core with another of them",
                   shared);
    else
        doctor_say(
            doctor, DOCTOR_PASSED,
            "no two of this process's logical CPUs share a physical core, as the kernel sees it");
}

void doctor_look_governor(struct doctor *doctor)
{
    struct stepaf_cpus cpus;
    char text[DOCTOR_NAME], other[DOCTOR_NAME] = "";
    int n = 0, slow = 0, first = -1;

    if (!doctor_cpus(doctor, &cpus)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "this process's cores are not known");
        return;
    }
    for (int cpu = stepaf_cpus_next(&cpus, 0); cpu >= 0; cpu = stepaf_cpus_next(&cpus, cpu + 1)) {
        if (doctor_read(doctor, text, sizeof text, CPU "/cpu%d/cpufreq/scaling_governor", cpu) <=
            0) {
            doctor_say(doctor, DOCTOR_UNKNOWN,
                       "core %d has no governor to read: in a virtual "
                       "machine the host decides",
                       cpu);
            return;
        }
        n++;
        if (strcmp(text, "performance") != 0) {
            slow++;
            first = first < 0 ? cpu : first;
            snprintf(other, sizeof other, "%s", text);
        }
    }
    if (slow)
        doctor_say(doctor, DOCTOR_WARNED, "%s on %d of %d cores, %d first", other, slow, n, first);
    else
        doctor_say(doctor, DOCTOR_PASSED, "performance on all %d cores", n);
}

/* Find the deepest enabled idle state of one core: return its latency in us, -1: unreadable. */
static long long deepest(const struct doctor *doctor, int cpu, char *name, size_t capacity)
{
    struct doctor_names states;
    long long worst = -1;

    if (!doctor_list(doctor, &states, CPU "/cpu%d/cpuidle", cpu))
        return -1;
    for (size_t i = 0; i < states.n; i++) {
        const char *state = states.name[i];
        long long latency, off;
        if (strncmp(state, "state", 5) != 0)
            continue;
        if (!doctor_read_number(doctor, &latency, CPU "/cpu%d/cpuidle/%s/latency", cpu, state) ||
            !doctor_read_number(doctor, &off, CPU "/cpu%d/cpuidle/%s/disable", cpu, state) ||
            latency < 0)
            return -1;
        if (!off && latency > worst) {
            worst = latency;
            doctor_read(doctor, name, capacity, CPU "/cpu%d/cpuidle/%s/name", cpu, state);
        }
    }
    return worst;
}

void doctor_look_idle(struct doctor *doctor)
{
    struct stepaf_cpus cpus;
    char name[DOCTOR_NAME] = "", worst_name[DOCTOR_NAME] = "";
    long long worst = -1;

    if (!doctor_cpus(doctor, &cpus)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "this process's cores are not known");
        return;
    }
    for (int cpu = stepaf_cpus_next(&cpus, 0); cpu >= 0; cpu = stepaf_cpus_next(&cpus, cpu + 1)) {
        long long latency = deepest(doctor, cpu, name, sizeof name);
        if (latency < 0) {
            doctor_say(doctor, DOCTOR_UNKNOWN, "core %d has no idle states to read", cpu);
            return;
        }
        if (latency > worst) {
            worst = latency;
            snprintf(worst_name, sizeof worst_name, "%s", name);
        }
    }
    doctor_say(doctor, worst > 20 ? DOCTOR_WARNED : DOCTOR_PASSED,
               "the deepest idle state that is on, %s, takes %lld us to leave",
               *worst_name ? worst_name : "without a name", worst);
}

void doctor_look_clock(struct doctor *doctor)
{
    static const char *const good[] = {"tsc", "arch_sys_counter"};
    static const char *const fair[] = {"kvm-clock", "hyperv_clocksource_tsc_page"};
    char text[DOCTOR_NAME];

    if (doctor_read(doctor, text, sizeof text,
                    "/sys/devices/system/clocksource/clocksource0/current_clocksource") <= 0) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "current_clocksource cannot be read");
        return;
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (strcmp(text, good[i]) == 0) {
            doctor_say(doctor, DOCTOR_PASSED, "%s", text);
            return;
        }
    for (size_t i = 0; i < sizeof fair / sizeof *fair; i++)
        if (strcmp(text, fair[i]) == 0) {
            doctor_say(doctor, DOCTOR_WARNED,
                       "%s: without a system call, but not by the bare counter", text);
            return;
        }
    if (strcmp(text, "hpet") == 0 || strcmp(text, "acpi_pm") == 0 || strcmp(text, "jiffies") == 0 ||
        strcmp(text, "refined-jiffies") == 0 || strcmp(text, "pit") == 0 ||
        strcmp(text, "xen") == 0)
        doctor_say(doctor, DOCTOR_FAILED, "%s: each reading is a system call", text);
    else
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s: its cost is not known here", text);
}

void doctor_look_load(struct doctor *doctor)
{
    struct stepaf_cpus online;
    char text[4096];
    double load;

    if (doctor_read(doctor, text, sizeof text, "/proc/loadavg") <= 0 ||
        sscanf(text, "%10lf", &load) != 1 || !(load >= 0 && load < 1e6)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "/proc/loadavg cannot be read");
        return;
    }
    if (doctor_read(doctor, text, sizeof text, CPU "/online") <= 0 ||
        !stepaf_cpus_parse(text, &online)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%.1f, on a number of cores that cannot be read", load);
        return;
    }
    int n = stepaf_cpus_count(&online);
    doctor_say(doctor, load > 0.5 * n ? DOCTOR_WARNED : DOCTOR_PASSED,
               "%.1f processes on %d cores, over the last minute", load, n);
}
