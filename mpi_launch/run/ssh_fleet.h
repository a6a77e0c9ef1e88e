/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a job that stepaf-run has started by ssh. */
#ifndef RUN_SSH_FLEET_H
#define RUN_SSH_FLEET_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/outlet.h"
#include "hosts.h"
#include "words.h"

/* One of the two streams of a host: what has come of a line. */
struct stream {
    int fd; /* -1: it has ended */
    int to;
    char *line;
    size_t have;
    size_t begun, put; /* of it, what is being put, and how much has been; 0: nothing is */
    int is_over;       /* nothing more is to come */
};

struct remote {
    const char *name;
    pid_t pid; /* of its ssh; 0: it has ended */
    int in;    /* what holds its ranks alive; -1: closed */
    char *job;
    size_t job_bytes, sent;
    long long beat_ms; /* when the next beat is due */
    struct stream streams[2];
};

struct fleet {
    struct run_hosts hosts;
    struct run_words names;   /* of variables that ranks get */
    struct run_words options; /* for ssh */
    struct rlimit files;      /* descriptors, as they are for an ssh */
    struct remote *remotes;
    struct stepaf_outlet outlets[3]; /* by descriptor */
    unsigned turn;                   /* the stream that is put first */
    int is_midway[3]; /* by descriptor: what was put there last has not ended its line */
    int n_running;
    int code; /* of the first that has failed */
    int is_ending, timeout_s;
    long long end_ms; /* when what is left is ended the hard way; 0: not yet */
};

/* ---- ssh_start.c ---- */

/* What each host is told: its ranks, which run @a words, where they meet, and their secret. -1 with
 * a sentence. */
int run_fleet_make_jobs(struct fleet *fleet, char **words);

/* The one command that a remote shell gets: the caller's to free. NULL: this program does not know
 * its name. */
char *run_fleet_command(void);

/* Send beats to the hosts that have their job. Returns how long to wait until the next call. */
int run_fleet_beat(struct fleet *fleet, long long now_ms);

/* Start the ssh, with @a mask of signals. -1 with a sentence. */
int run_fleet_start(const struct fleet *fleet, struct remote *remote, const char *command,
                    const sigset_t *mask);

#endif
