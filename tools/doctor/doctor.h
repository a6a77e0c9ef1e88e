/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_doctor: checks of what decides whether a machine, and a pair of machines, will do.
 *
 * A check is a row of table.c and a function, which says what it has found: once, or once for each
 * device. Everything that it reads is below a root, which tests bring along, and may be garbage.
 * What cannot be read is unknown, never passed. What a check tries, rather than reads, a test's
 * root says in its directory "tried". */
#ifndef STEPAF_TOOLS_DOCTOR_H
#define STEPAF_TOOLS_DOCTOR_H

#include <limits.h>
#include <stddef.h>

#include "settings/settings.h"
#include "topo/cpus.h"

enum doctor_state { DOCTOR_PASSED, DOCTOR_WARNED, DOCTOR_FAILED, DOCTOR_UNKNOWN, DOCTOR_STATES };

enum {
    DOCTOR_TEXT = 320,               /* what was found, and what mends it */
    DOCTOR_NAME = 64,                /* of a device or a file */
    DOCTOR_HOST = HOST_NAME_MAX + 3, /* as the kernel's file has it: with an end of line */
    DOCTOR_NAMES = 128               /* that are looked at in one directory */
};

struct doctor;

struct doctor_check {
    const char *name;
    const char *group;
    void (*look)(struct doctor *doctor);
    const char *why;  /* it matters */
    const char *mend; /* a command, unless what was found has one of its own; "" if there is none */
};

struct doctor_finding {
    const struct doctor_check *check;
    enum doctor_state state;
    char what[DOCTOR_TEXT];
    char mend[DOCTOR_TEXT];
    char where[DOCTOR_TEXT]; /* hosts, where there are several and it is not true of all; else "" */
};

struct doctor {
    const char *root;                 /* "" for this machine */
    const struct doctor_check *check; /* that looks now */
    struct doctor_finding *findings;
    size_t n;
};

/* Names of one directory. */
struct doctor_names {
    size_t n;
    char name[DOCTOR_NAMES][DOCTOR_NAME];
};

/* table.c: the end has no name. Those of ranks (and nobody else) have no function. */
extern const struct doctor_check doctor_checks[];
const struct doctor_check *doctor_find(const char *name);
/* Do what a name or a group stands for: all if @a n is 0. */
void doctor_run(struct doctor *doctor, const char *const *names, size_t n);
int doctor_named(const struct doctor_check *check, const char *const *names, size_t n);

/* say.c: add a finding of the current check. What is not printable ASCII becomes a question mark.
 * The program ends where there is no memory. */
void doctor_say(struct doctor *doctor, enum doctor_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What mends the last finding, in place of what the table has. */
void doctor_mend(struct doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct doctor_finding *doctor_add(struct doctor *doctor, const struct doctor_check *check);
void doctor_clean(char *text);
const char *doctor_state_name(enum doctor_state state);

/* read.c: the beginning of a small file, without blanks at its end. The length, or -1 if it cannot
 * be read. Paths begin with "/", below the root. */
int doctor_read(const struct doctor *doctor, char *text, size_t capacity, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A file that is one whole number. */
int doctor_read_number(const struct doctor *doctor, long long *number_p, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int doctor_exists(const struct doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The last part of what a symbolic link names. */
int doctor_read_link(const struct doctor *doctor, char *name, size_t capacity, const char *format,
                     ...) __attribute__((format(printf, 4, 5)));
/* A directory, sorted. False if it cannot be read. Names with characters that no device has are
 * left out, since names become parts of commands. */
int doctor_list(const struct doctor *doctor, struct doctor_names *names_p, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A line "NAME: value" of a file of /proc: its value. */
int doctor_read_field(const struct doctor *doctor, char *value, size_t capacity, const char *path,
                      const char *name);
/* Both limits that /proc/self/limits has: -1 is unlimited. */
int doctor_read_limit(const struct doctor *doctor, const char *name, long long *soft_p,
                      long long *hard_p);
/* Whether this is a test's root, and then what "tried" has for @a name. */
int doctor_is_test(const struct doctor *doctor);
int doctor_read_tried(const struct doctor *doctor, char *text, size_t capacity, const char *name);
/* A whole number and nothing else. */
int doctor_parse(const char *text, long long *number_p);

/* facts.c: what several checks ask. */
int doctor_has_capability(const struct doctor *doctor, int capability); /* -1: not known */
int doctor_cpus(const struct doctor *doctor, struct stepaf_cpus *cpus_p);
int doctor_kernel_at_least(const struct doctor *doctor, int major, int minor); /* -1: not known */
/* cgroup.c: a file of the control group that this process is in, and of those above it: call with
 * level 0, 1, ... until 0 comes back, which is the end. -1: the groups are not known, and nothing
 * can be said. 1 with text "" where this level has no such file. */
int doctor_read_cgroup(const struct doctor *doctor, const char *controller, int level,
                       const char *name_v1, const char *name_v2, char *text, size_t capacity);

/* The values that the environment gives the settings; false, with the library's sentence, if one is
 * bad. */
int doctor_load_settings(struct stepaf_env *env_p);
/* The machine's name. */
void doctor_host(const struct doctor *doctor, char *name, size_t capacity);

/* pci.c: devices of the PCI bus. */
int doctor_gpus(const struct doctor *doctor, struct doctor_names *gpus_p); /* -1: not known */
int doctor_nic_pci(const struct doctor *doctor, const char *device, char *address, size_t capacity);

/* report.c, json.c: the findings, for people or for programs. False if they cannot be written,
 * of which a sentence is on standard error. */
struct doctor_about {
    const char *hosts; /* "h1, h2" */
    int n_hosts;
    int n_ranks;  /* 0 without a launcher */
    int with_all; /* why it matters what has passed */
};
int doctor_report(const struct doctor *doctor, const struct doctor_about *about);
int doctor_json(const struct doctor *doctor, const struct doctor_about *about);
void doctor_print_list(void);
/* Whether all has been written; if not, says so on standard error. */
int doctor_flush(void);
size_t doctor_count(const struct doctor *doctor, enum doctor_state state);

void doctor_look_memlock(struct doctor *doctor);
void doctor_look_memory(struct doctor *doctor);
void doctor_look_hugepages(struct doctor *doctor);
void doctor_look_shm(struct doctor *doctor);
void doctor_look_balancing(struct doctor *doctor);
void doctor_look_files(struct doctor *doctor);
void doctor_look_pids(struct doctor *doctor);
void doctor_look_namespace(struct doctor *doctor);
void doctor_look_ptrace(struct doctor *doctor);
void doctor_look_attach(struct doctor *doctor);
void doctor_look_settings(struct doctor *doctor);
void doctor_look_cores(struct doctor *doctor);
void doctor_look_quota(struct doctor *doctor);
void doctor_look_isolated(struct doctor *doctor);
void doctor_look_smt(struct doctor *doctor);
void doctor_look_governor(struct doctor *doctor);
void doctor_look_idle(struct doctor *doctor);
void doctor_look_clock(struct doctor *doctor);
void doctor_look_load(struct doctor *doctor);
void doctor_look_jitter(struct doctor *doctor);
void doctor_look_interfaces(struct doctor *doctor);
void doctor_look_rdma(struct doctor *doctor);
void doctor_look_port(struct doctor *doctor);
void doctor_look_rate(struct doctor *doctor);
void doctor_look_gid(struct doctor *doctor);
void doctor_look_mtu(struct doctor *doctor);
void doctor_look_pfc(struct doctor *doctor);
void doctor_look_ecn(struct doctor *doctor);
void doctor_look_loss(struct doctor *doctor);
void doctor_look_gpu(struct doctor *doctor);
void doctor_look_peermem(struct doctor *doctor);
void doctor_look_dmabuf(struct doctor *doctor);
void doctor_look_distance(struct doctor *doctor);
void doctor_look_pcie(struct doctor *doctor);
void doctor_look_numa(struct doctor *doctor);
void doctor_look_iommu(struct doctor *doctor);
void doctor_look_acs(struct doctor *doctor);

#endif
