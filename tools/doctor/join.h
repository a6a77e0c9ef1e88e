/* SPDX-License-Identifier: Apache-2.0 */
/* Several ranks: how they join, what they exchange, and how their findings are merged. */
#ifndef STEPAF_TOOLS_DOCTOR_JOIN_H
#define STEPAF_TOOLS_DOCTOR_JOIN_H

#include <stepaf/boot.h>

#include "doctor.h"

enum {
    DOCTOR_HOSTS = 1024, /* compared facts */
    DOCTOR_FACTS = 128,
    DOCTOR_FACT_NAME = 48,
    DOCTOR_FACT_VALUE = 160
};

/* A fact that ranks are compared by. */
struct doctor_fact {
    char name[DOCTOR_FACT_NAME];
    char value[DOCTOR_FACT_VALUE]; /* "" if it is not known */
    enum doctor_state differs;     /* the state of the check if ranks have different values */
};

struct doctor_facts {
    int n;
    struct doctor_fact fact[DOCTOR_FACTS];
};

/* The command line. */
struct doctor_task {
    const char *root;
    const char *const *names;
    size_t n_names;
    int is_json;
    int with_all;
};

/* join.c: return whether the environment says that this process is one of several. */
int doctor_is_joined(void);
/* Run the job's checks; return the exit code. */
int doctor_run_joined(const struct doctor_task *task);
/* join_mpi.c, join_none.c: make a bootstrap on MPI. Returns false, with a message printed, if
 * that is not possible. */
int doctor_open_mpi(stepaf_boot_t *boot_p, char *library, size_t capacity);

/* compare.c: collect this rank's facts; and derive the findings from those of all ranks. */
void doctor_facts(const struct doctor *doctor, const char *launcher, struct doctor_facts *facts_p);
void doctor_compare(struct doctor *doctor, const struct doctor_facts *facts, int n_ranks,
                    const int *host_of_rank, const char *const *hosts);

/* tell.c: convert to text for other ranks, and back. Text of other ranks is not trusted. */
char *doctor_pack_facts(const struct doctor_facts *facts);
void doctor_unpack_facts(const char *text, size_t bytes, struct doctor_facts *facts_p);
char *doctor_pack_findings(const struct doctor *doctor);
void doctor_unpack_findings(const char *text, size_t bytes, struct doctor *doctor);
/* Add the findings of one host; a finding that several hosts share is kept once. */
struct doctor_merged {
    struct doctor all;
    unsigned char *on; /* n * n_hosts: which finding belongs to which host */
    int n_hosts;
};
void doctor_merge(struct doctor_merged *merged, const struct doctor *one, int host);
void doctor_merge_end(struct doctor_merged *merged, const char *const *hosts);

/* connect.c: TCP between hosts. Begin listens and returns its addresses as text for the others;
 * run tries the other hosts in this host's share, and returns the results as text; end stops
 * listening. */
struct doctor_connect;
struct doctor_connect *doctor_connect_begin(char *text, size_t capacity);
char *doctor_connect_run(struct doctor_connect *connect, int host, int n_hosts,
                         const char *const *texts);
void doctor_connect_end(struct doctor_connect *connect);
/* Make findings from all hosts' texts. */
void doctor_connect_say(struct doctor *doctor, const char *const *results, int n_hosts,
                        const char *const *hosts);

#endif
