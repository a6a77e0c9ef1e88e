/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of hosts. Input is not trusted: names go into other programs' command lines. */
#ifndef RUN_HOSTS_H
#define RUN_HOSTS_H

#include <stddef.h>

struct run_host {
    char *name;
    int room;  /* slots for ranks; 0: an equal share */
    int ranks; /* ranks assigned */
};

struct run_hosts {
    struct run_host *host;
    int n;
};

/* Parse "h1:4,h2:4" or "h1,h2". Returns -1 with a sentence; *hosts_p is empty then. */
int run_hosts_parse(const char *list, struct run_hosts *hosts_p);

/* Parse a file with a host per line: "h1", "h1:4" or "h1 slots=4"; '#' begins a comment. Fails
 * as run_hosts_parse. The second function reads a stream that is open already, and leaves it
 * open. */
int run_hosts_read(const char *path, struct run_hosts *hosts_p);
int run_hosts_read_stream(void *stream, const char *path, struct run_hosts *hosts_p);

/* Distribute @a ranks: to the first hosts first where slots are given, else in equal shares; or
 * with @a per_node, exactly that many to each. Hosts without ranks are dropped. Returns -1 with
 * a sentence if there are too few slots. */
int run_hosts_deal(struct run_hosts *hosts, int ranks, int per_node);

void run_hosts_free(struct run_hosts *hosts);

#endif
