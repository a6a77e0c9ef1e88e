/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of hosts. No input is trusted: a name goes into other programs' command lines. */
#ifndef RUN_HOSTS_H
#define RUN_HOSTS_H

#include <stddef.h>

struct run_host {
    char *name;
    int room;  /* ranks that it takes; 0: as many as fall to it */
    int ranks; /* that it gets */
};

struct run_hosts {
    struct run_host *host;
    int n;
};

/* Parse "h1:4,h2:4" or "h1,h2". -1 with a sentence; *hosts_p is empty then. */
int run_hosts_parse(const char *list, struct run_hosts *hosts_p);

/* Parse a file with a host a line: "h1", "h1:4" or "h1 slots=4"; '#' begins a comment. The same.
 * Or one that is open already, and stays so. */
int run_hosts_read(const char *path, struct run_hosts *hosts_p);
int run_hosts_read_stream(void *stream, const char *path, struct run_hosts *hosts_p);

/* Give out @a ranks, the first hosts first where they have room given, else in equal shares; or
 * with @a per_node, exactly that many to each. Hosts that get none are dropped. -1 with a sentence
 * if there is too little room. */
int run_hosts_deal(struct run_hosts *hosts, int ranks, int per_node);

void run_hosts_free(struct run_hosts *hosts);

#endif
