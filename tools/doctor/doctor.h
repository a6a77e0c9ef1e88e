/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_doctor: checks whether a machine, and a pair of machines, is fit for the library.
 *
 * A check is a row of table.c and a function, which reports its finding: once, or once for each
 * device. Everything that a check reads is below a root, which tests provide, and may be
 * garbage. Anything unreadable is reported as unknown, never as passed. Results of checks that
 * try something, rather than read, come from the directory "tried" of a test's root. */
#ifndef STEPAF_TOOLS_DOCTOR_H
#define STEPAF_TOOLS_DOCTOR_H

#include <limits.h>
#include <stddef.h>

#include "settings/settings.h"
#include "topo/cpus.h"

enum doctor_state { DOCTOR_PASSED, DOCTOR_WARNED, DOCTOR_FAILED, DOCTOR_UNKNOWN, DOCTOR_STATES };

enum {
    DOCTOR_TEXT = 320,               /* what was found, and the remedy */
    DOCTOR_NAME = 64,                /* of a device or a file */
    DOCTOR_HOST = HOST_NAME_MAX + 3, /* as in the kernel's file: with an end of line */
    DOCTOR_NAMES = 128               /* kept of one directory */
};

struct doctor;

struct doctor_check {
    const char *name;
    const char *group;
    void (*look)(struct doctor *doctor);
    const char *why;  /* why the check matters */
    const char *mend; /* a command, unless the finding has one of its own; "" if there is none */
};

struct doctor_finding {
    const struct doctor_check *check;
    enum doctor_state state;
    char what[DOCTOR_TEXT];
    char mend[DOCTOR_TEXT];
    char where[DOCTOR_TEXT]; /* the hosts, if the finding holds for some of several only; else "" */
};

struct doctor {
    const char *root;                 /* "" for this machine */
    const struct doctor_check *check; /* the current check */
    struct doctor_finding *findings;
    size_t n;
};

/* Names of one directory. */
struct doctor_names {
    size_t n;
    size_t n_cut; /* further ones, for which there was no space */
    char name[DOCTOR_NAMES][DOCTOR_NAME];
};

/* table.c: the last entry has no name. Only checks that compare ranks have no function. */
extern const struct doctor_check doctor_checks[];
const struct doctor_check *doctor_find(const char *name);
/* Run the checks of a name or a group: all if @a n is 0. */
void doctor_run(struct doctor *doctor, const char *const *names, size_t n);
int doctor_named(const struct doctor_check *check, const char *const *names, size_t n);

/* say.c: add a finding of the current check. Characters other than printable ASCII become
 * question marks. The program exits if memory runs out. */
void doctor_say(struct doctor *doctor, enum doctor_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Set the remedy of the last finding, in place of the table's. */
void doctor_mend(struct doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Report as unknown what a list had no space for: @a what are the devices. */
void doctor_say_cut(struct doctor *doctor, const struct doctor_names *names, const char *what);
struct doctor_finding *doctor_add(struct doctor *doctor, const struct doctor_check *check);
void doctor_clean(char *text);
const char *doctor_state_name(enum doctor_state state);

/* read.c: read the beginning of a small file, without blanks at its end. Return the length, or
 * -1 if the file cannot be read. Paths begin with "/", below the root. */
int doctor_read(const struct doctor *doctor, char *text, size_t capacity, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Read a file that is one whole number. */
int doctor_read_number(const struct doctor *doctor, long long *number_p, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int doctor_exists(const struct doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Read the last component of a symbolic link's target. */
int doctor_read_link(const struct doctor *doctor, char *name, size_t capacity, const char *format,
                     ...) __attribute__((format(printf, 4, 5)));
/* Read a directory, sorted. Returns false if it cannot be read. Names with characters that no
 * device has are left out, since names become parts of commands. */
int doctor_list(const struct doctor *doctor, struct doctor_names *names_p, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, of the names that @a wants accepts: other names take no space. */
typedef int doctor_wants_fn(const struct doctor *doctor, const char *name);
int doctor_list_if(const struct doctor *doctor, doctor_wants_fn *wants,
                   struct doctor_names *names_p, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Read the value of a line "NAME: value" of a file of /proc. */
int doctor_read_field(const struct doctor *doctor, char *value, size_t capacity, const char *path,
                      const char *name);
/* Read both limits of a line of /proc/self/limits: -1 is unlimited. */
int doctor_read_limit(const struct doctor *doctor, const char *name, long long *soft_p,
                      long long *hard_p);
/* Return whether this is a test's root, and then the entry of "tried" for @a name. */
int doctor_is_test(const struct doctor *doctor);
int doctor_read_tried(const struct doctor *doctor, char *text, size_t capacity, const char *name);
/* Parse a whole number without any other characters. */
int doctor_parse(const char *text, long long *number_p);

/* facts.c: facts that several checks need. */
int doctor_has_capability(const struct doctor *doctor, int capability); /* -1: not known */
int doctor_cpus(const struct doctor *doctor, struct stepaf_cpus *cpus_p);
int doctor_kernel_at_least(const struct doctor *doctor, int major, int minor); /* -1: not known */
/* cgroup.c: read a file of this process's control group, and of those above it: call with level
 * 0, 1, ... until 0 is returned, which is the end. Returns -1 if the groups are not known.
 * Returns 1 with text "" where the level has no such file. */
int doctor_read_cgroup(const struct doctor *doctor, const char *controller, int level,
                       const char *name_v1, const char *name_v2, char *text, size_t capacity);

/* Read the settings from the environment; returns false, with the library's sentence, if one is
 * bad. */
int doctor_load_settings(struct stepaf_env *env_p);
/* Get the machine's name. */
void doctor_host(const struct doctor *doctor, char *name, size_t capacity);

/* pci.c: devices of the PCI bus. */
int doctor_gpus(const struct doctor *doctor, struct doctor_names *gpus_p); /* -1: not known */
int doctor_nic_pci(const struct doctor *doctor, const char *device, char *address, size_t capacity);

/* report.c, json.c: print the findings, for people or for programs. Return false, with a
 * sentence on standard error, if they cannot be written. */
struct doctor_about {
    const char *hosts; /* "h1, h2" */
    int n_hosts;
    int n_ranks;  /* 0 without a launcher */
    int with_all; /* explain also why the passed checks matter */
};
int doctor_report(const struct doctor *doctor, const struct doctor_about *about);
int doctor_json(const struct doctor *doctor, const struct doctor_about *about);
void doctor_print_list(void);
/* Return whether all output has been written; if not, say so on standard error. */
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
