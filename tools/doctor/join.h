/* SPDX-License-Identifier: Apache-2.0 */
/* Several ranks: how they are joined, what they say to each other, and what comes of it. */
#ifndef STEPAF_TOOLS_DOCTOR_JOIN_H
#define STEPAF_TOOLS_DOCTOR_JOIN_H

#include <stepaf/boot.h>

#include "doctor.h"

enum {
    DOCTOR_HOSTS = 1024, /* that are compared */
    DOCTOR_FACTS = 128,
    DOCTOR_FACT_NAME = 48,
    DOCTOR_FACT_VALUE = 160
};

/* What ranks are compared by. */
struct doctor_fact {
    char name[DOCTOR_FACT_NAME];
    char value[DOCTOR_FACT_VALUE]; /* "" if it is not known */
    enum doctor_state differs;     /* what it is if ranks have different ones */
};

struct doctor_facts {
    int n;
    struct doctor_fact fact[DOCTOR_FACTS];
};

/* What the command line asks for. */
struct doctor_task {
    const char *root;
    const char *const *names;
    size_t n_names;
    int is_json;
    int with_all;
};

/* join.c: whether the environment says that this process is one of several. */
int doctor_is_joined(void);
/* The exit code. */
int doctor_run_joined(const struct doctor_task *task);
/* join_mpi.c, join_none.c: a bootstrap on MPI. False, and it was said why, if there is none. */
int doctor_open_mpi(stepaf_boot_t *boot_p, char *library, size_t capacity);

/* compare.c: this rank's facts; and the findings of all ranks' together. */
void doctor_facts(const struct doctor *doctor, const char *launcher, struct doctor_facts *facts_p);
void doctor_compare(struct doctor *doctor, const struct doctor_facts *facts, int n_ranks,
                    const int *host_of_rank, const char *const *hosts);

/* tell.c: as text for other ranks, and back. Texts of others are not trusted. */
char *doctor_pack_facts(const struct doctor_facts *facts);
void doctor_unpack_facts(const char *text, size_t bytes, struct doctor_facts *facts_p);
char *doctor_pack_findings(const struct doctor *doctor);
void doctor_unpack_findings(const char *text, size_t bytes, struct doctor *doctor);
/* Add what one host has found; what another has found as well is one finding of both. */
struct doctor_merged {
    struct doctor all;
    unsigned char *on; /* n * n_hosts: which finding is of which host */
    int n_hosts;
};
void doctor_merge(struct doctor_merged *merged, const struct doctor *one, int host);
void doctor_merge_end(struct doctor_merged *merged, const char *const *hosts);

/* connect.c: TCP between hosts. Begin listens and says where, as text for the others; run tries the
 * other hosts that are this one's share, and returns a text of what came of it; end stops. */
struct doctor_connect;
struct doctor_connect *doctor_connect_begin(char *text, size_t capacity);
char *doctor_connect_run(struct doctor_connect *connect, int host, int n_hosts,
                         const char *const *texts);
void doctor_connect_end(struct doctor_connect *connect);
/* Findings from all hosts' texts. */
void doctor_connect_say(struct doctor *doctor, const char *const *results, int n_hosts,
                        const char *const *hosts);

#endif
