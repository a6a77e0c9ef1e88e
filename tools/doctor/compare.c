/* SPDX-License-Identifier: Apache-2.0 */
/* The facts that ranks are compared by: versions, settings, limits, devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include <stepaf/version.h>

#include "join.h"
#include "wireup/hello.h"

static struct doctor_fact *add_fact(struct doctor_facts *facts, const char *name,
                                    enum doctor_state differs)
{
    static struct doctor_fact none;

    if (facts->n == DOCTOR_FACTS)
        return &none;
    struct doctor_fact *fact = &facts->fact[facts->n++];
    memset(fact, 0, sizeof *fact);
    snprintf(fact->name, sizeof fact->name, "%s", name);
    fact->differs = differs;
    return fact;
}

/* Settings that may differ between ranks, or are secret. */
static int is_own_setting(const char *name)
{
    static const char *const own[] = {
        "LOCAL_RANK",  "RANK",           "ROLE",    "SECRET", "SECRET_FILE", "LOG_FILE", "NET_IF",
        "NET_DEVICES", "PROGRESS_CORES", "LIBRARY", "MEET",   "LOG_LEVEL",   "PRINT_MAP"};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return 1;
    return 0;
}

static void add_settings(struct doctor_facts *facts)
{
    struct stepaf_env env;
    int good = doctor_load_settings(&env);

    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        stepaf_env_describe(i, &info);
        if (is_own_setting(info.name + strlen("STEPAF_")))
            continue;
        struct doctor_fact *fact =
            add_fact(facts, info.name, info.must_agree ? DOCTOR_FAILED : DOCTOR_WARNED);
        const char *given = getenv(info.name);
        if (good)
            stepaf_env_format(&env, i, fact->value, sizeof fact->value);
        else
            snprintf(fact->value, sizeof fact->value, "%s", given ? given : info.fallback);
        if (!*fact->value)
            snprintf(fact->value, sizeof fact->value, "empty");
    }
    if (good)
        stepaf_env_free(&env);
}

static void add_limit(const struct doctor *doctor, struct doctor_facts *facts, const char *name,
                      const char *limit)
{
    struct doctor_fact *fact = add_fact(facts, name, DOCTOR_WARNED);
    long long soft, hard;

    if (!doctor_read_limit(doctor, limit, &soft, &hard))
        return;
    if (soft < 0)
        snprintf(fact->value, sizeof fact->value, "unlimited");
    else
        snprintf(fact->value, sizeof fact->value, "%lld", soft);
}

/* Active ports of RDMA devices: how many at which rate, and their kind. */
static void add_ports(const struct doctor *doctor, struct doctor_facts *facts)
{
    struct doctor_names devices, ports;
    struct doctor_fact *rate = add_fact(facts, "rate of RDMA ports", DOCTOR_WARNED);
    struct doctor_fact *firmware = add_fact(facts, "firmware of RDMA devices", DOCTOR_WARNED);
    char text[DOCTOR_NAME], state[DOCTOR_NAME], layer[DOCTOR_NAME];
    size_t used = 0, firm = 0;

    if (!doctor_list(doctor, &devices, "/sys/class/infiniband")) {
        int known = doctor_exists(doctor, "/sys/class");
        snprintf(rate->value, sizeof rate->value, "%s", known ? "no device" : "");
        snprintf(firmware->value, sizeof firmware->value, "%s", known ? "no device" : "");
        return;
    }
    for (size_t i = 0; i < devices.n; i++) {
        doctor_read(doctor, text, sizeof text, "/sys/class/infiniband/%s/fw_ver", devices.name[i]);
        if (!strstr(firmware->value, text) && firm + strlen(text) + 3 < sizeof firmware->value)
            firm += (size_t)snprintf(firmware->value + firm, sizeof firmware->value - firm, "%s%s",
                                     firm ? ", " : "", text);
        doctor_list(doctor, &ports, "/sys/class/infiniband/%s/ports", devices.name[i]);
        for (size_t k = 0; k < ports.n; k++) {
            if (doctor_read(doctor, state, sizeof state, "/sys/class/infiniband/%s/ports/%s/state",
                            devices.name[i], ports.name[k]) <= 0 ||
                strncmp(state, "4:", 2) != 0)
                continue;
            doctor_read(doctor, text, sizeof text, "/sys/class/infiniband/%s/ports/%s/rate",
                        devices.name[i], ports.name[k]);
            doctor_read(doctor, layer, sizeof layer, "/sys/class/infiniband/%s/ports/%s/link_layer",
                        devices.name[i], ports.name[k]);
            if (used + strlen(text) + strlen(layer) + 4 < sizeof rate->value)
                used += (size_t)snprintf(rate->value + used, sizeof rate->value - used, "%s%s %s",
                                         used ? ", " : "", layer, text);
        }
    }
    if (!used)
        snprintf(rate->value, sizeof rate->value, "no active port");
}

void doctor_facts(const struct doctor *doctor, const char *launcher, struct doctor_facts *facts_p)
{
    struct doctor_fact *fact;
    struct stepaf_cpus cpus;
    struct utsname name;

    facts_p->n = 0;
    fact = add_fact(facts_p, "libstepaf", DOCTOR_FAILED);
    if (!doctor_is_test(doctor) ||
        !doctor_read_tried(doctor, fact->value, sizeof fact->value, "version"))
        snprintf(fact->value, sizeof fact->value, "%s, wire version %d", stepaf_version(),
                 STEPAF_WIRE_VERSION);
    fact = add_fact(facts_p, "MPI", DOCTOR_FAILED);
    snprintf(fact->value, sizeof fact->value, "%s", launcher);
    fact = add_fact(facts_p, "processor", DOCTOR_FAILED);
    if (uname(&name) == 0)
        snprintf(fact->value, sizeof fact->value, "%s", name.machine);
    fact = add_fact(facts_p, "kernel", DOCTOR_WARNED);
    doctor_read(doctor, fact->value, sizeof fact->value, "/proc/sys/kernel/osrelease");
    fact = add_fact(facts_p, "clock source", DOCTOR_WARNED);
    doctor_read(doctor, fact->value, sizeof fact->value,
                "/sys/devices/system/clocksource/clocksource0/current_clocksource");
    fact = add_fact(facts_p, "cores of a rank", DOCTOR_WARNED);
    if (doctor_cpus(doctor, &cpus))
        snprintf(fact->value, sizeof fact->value, "%d", stepaf_cpus_count(&cpus));
    add_limit(doctor, facts_p, "locked memory", "Max locked memory");
    add_limit(doctor, facts_p, "open files", "Max open files");
    add_ports(doctor, facts_p);
    fact = add_fact(facts_p, "driver of GPUs", DOCTOR_WARNED);
    if (!doctor_read_field(doctor, fact->value, sizeof fact->value, "/proc/driver/nvidia/version",
                           "NVRM version"))
        snprintf(fact->value, sizeof fact->value, "none");
    add_settings(facts_p);
    for (int i = 0; i < facts_p->n; i++)
        doctor_clean(facts_p->fact[i].value);
}

static const char *value_of(const struct doctor_facts *facts, const char *name)
{
    for (int i = 0; i < facts->n; i++)
        if (strcmp(facts->fact[i].name, name) == 0)
            return facts->fact[i].value;
    return "";
}

/* Write "A (h1, ranks 0, 1); B (h2, rank 2)": up to three values, each with its first ranks. */
static void tell_difference(char *text, size_t capacity, const char *name,
                            const struct doctor_facts *facts, int n_ranks, const int *host_of_rank,
                            const char *const *hosts)
{
    size_t used = 0;

    for (int i = 0, n = 0; i < n_ranks && used < capacity; i++) {
        const char *value = value_of(&facts[i], name);
        int before = 0, ranks = 0;
        for (int k = 0; k < i; k++)
            before |= strcmp(value_of(&facts[k], name), value) == 0;
        if (before)
            continue;
        if (n++ == 3) {
            snprintf(text + used, capacity - used, "; and others");
            return;
        }
        for (int k = i; k < n_ranks; k++)
            ranks += strcmp(value_of(&facts[k], name), value) == 0;
        used +=
            (size_t)snprintf(text + used, capacity - used, "%s%.70s (%d rank%s, %d on %.20s first)",
                             n > 1 ? "; " : "", *value ? value : "not known", ranks,
                             ranks == 1 ? "" : "s", i, hosts[host_of_rank[i]]);
    }
}

void doctor_compare(struct doctor *doctor, const struct doctor_facts *facts, int n_ranks,
                    const int *host_of_rank, const char *const *hosts)
{
    int n_settings = 0, same_settings = 0;

    for (int i = 0; i < facts[0].n; i++) {
        const struct doctor_fact *fact = &facts[0].fact[i];
        int is_setting = strncmp(fact->name, "STEPAF_", strlen("STEPAF_")) == 0;
        int differs = 0, unknown = 0;
        char text[DOCTOR_TEXT] = "";
        for (int k = 0; k < n_ranks; k++) {
            const char *value = value_of(&facts[k], fact->name);
            differs |= strcmp(value, fact->value) != 0;
            unknown |= !*value;
        }
        n_settings += is_setting;
        same_settings += is_setting && !differs && !unknown;
        if (differs) {
            tell_difference(text, sizeof text, fact->name, facts, n_ranks, host_of_rank, hosts);
            doctor_say(doctor, fact->differs, "%s: %s", fact->name, text);
            if (is_setting)
                doctor_mend(doctor, "mpirun -x %s ...   # or export it for all ranks", fact->name);
        } else if (unknown && strcmp(fact->name, "MPI") != 0) {
            doctor_say(doctor, DOCTOR_UNKNOWN, "%s: not known of any rank", fact->name);
        } else if (!is_setting && !unknown) {
            doctor_say(doctor, DOCTOR_PASSED, "%s: %s", fact->name, fact->value);
        }
    }
    if (same_settings == n_settings)
        doctor_say(doctor, DOCTOR_PASSED, "%d settings of the library", n_settings);
}
