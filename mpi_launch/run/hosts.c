/* SPDX-License-Identifier: Apache-2.0 */
#include "hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "options.h"

enum { HOSTS_MAX = 1 << 16, LINE_BYTES_MAX = 512, SHOWN_MAX = 64 };

/* Letters, digits, dots, dashes and underscores; no leading dash, which would make an option. */
static int is_host(const char *text, size_t bytes)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-";
    return bytes > 0 && bytes < 256 && text[0] != '-' && text[0] != '.' &&
           strspn(text, allowed) >= bytes;
}

/* Digits only, 1 to RUN_RANKS_MAX; else 0. */
static int parse_room(const char *text, size_t bytes)
{
    int room = 0;

    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        room = room * 10 + (text[i] - '0');
        if (room > RUN_RANKS_MAX)
            return 0;
    }
    return room;
}

/* Add the host text[0..bytes) with @a room. @a where names its position. */
static int add(struct run_hosts *hosts, const char *text, size_t bytes, int room, const char *where)
{
    if (!is_host(text, bytes))
        return run_fail("%s: \"%.*s\" is not the name of a host", where,
                        (int)(bytes < SHOWN_MAX ? bytes : SHOWN_MAX), text);
    if (hosts->n > 0 && !hosts->host[0].room != !room)
        return run_fail("%s: give a number of ranks for all hosts, or for none", where);
    if (hosts->n == HOSTS_MAX)
        return run_fail("%s: more than %d hosts", where, HOSTS_MAX);
    for (int i = 0; i < hosts->n; i++)
        if (strncmp(hosts->host[i].name, text, bytes) == 0 && !hosts->host[i].name[bytes])
            return run_fail("%s: %s is listed twice", where, hosts->host[i].name);
    struct run_host *host = realloc(hosts->host, (size_t)(hosts->n + 1) * sizeof(*host));
    if (host)
        hosts->host = host;
    char *name = strndup(text, bytes);
    if (!host || !name) {
        free(name);
        return run_fail("out of memory");
    }
    hosts->host[hosts->n++] = (struct run_host){.name = name, .room = room};
    return 0;
}

/* Add "h1" or "h1:4". */
static int add_word(struct run_hosts *hosts, const char *text, size_t bytes, const char *where)
{
    const char *colon = memchr(text, ':', bytes);
    size_t name_bytes = colon ? (size_t)(colon - text) : bytes;
    int room = 0;

    if (colon && !(room = parse_room(colon + 1, bytes - name_bytes - 1)))
        return run_fail("%s: \"%.*s\" is not HOST:N with N from 1 to %d", where,
                        (int)(bytes < SHOWN_MAX ? bytes : SHOWN_MAX), text, RUN_RANKS_MAX);
    return add(hosts, text, name_bytes, room, where);
}

int run_hosts_parse(const char *list, struct run_hosts *hosts_p)
{
    *hosts_p = (struct run_hosts){0};
    for (;;) {
        size_t bytes = strcspn(list, ",");
        if (add_word(hosts_p, list, bytes, "--hosts") != 0) {
            run_hosts_free(hosts_p);
            return -1;
        }
        if (list[bytes] == '\0')
            return 0;
        list += bytes + 1;
    }
}

/* Parse one line of a file, without its comment. */
static int add_line(struct run_hosts *hosts, const char *line, const char *where)
{
    static const char blanks[] = " \t\r\n";
    static const char slots[] = "slots=";
    size_t bytes;
    const char *rest;

    line += strspn(line, blanks);
    if (*line == '\0')
        return 0;
    bytes = strcspn(line, blanks);
    rest = line + bytes + strspn(line + bytes, blanks);
    if (*rest == '\0')
        return add_word(hosts, line, bytes, where);
    size_t rest_bytes = strcspn(rest, blanks);
    int room = 0;
    if (strncmp(rest, slots, sizeof(slots) - 1) == 0)
        room = parse_room(rest + sizeof(slots) - 1, rest_bytes - (sizeof(slots) - 1));
    if (!room || rest[rest_bytes + strspn(rest + rest_bytes, blanks)] || memchr(line, ':', bytes))
        return run_fail("%s: each line must be HOST, HOST:N or HOST slots=N", where);
    return add(hosts, line, bytes, room, where);
}

static int read_lines(FILE *file, const char *path, struct run_hosts *hosts)
{
    char line[LINE_BYTES_MAX];
    char where[SHOWN_MAX + 32];

    for (int number = 1; fgets(line, sizeof(line), file); number++) {
        snprintf(where, sizeof(where), "%.*s, line %d", SHOWN_MAX, path, number);
        if (strlen(line) == sizeof(line) - 1)
            return run_fail("%s: too long", where);
        line[strcspn(line, "#")] = '\0';
        if (add_line(hosts, line, where) != 0)
            return -1;
    }
    if (ferror(file))
        return run_fail("--hostfile %s: %s", path, strerror(errno));
    if (hosts->n == 0)
        return run_fail("--hostfile %s: the file names no host", path);
    return 0;
}

int run_hosts_read_stream(void *stream, const char *path, struct run_hosts *hosts_p)
{
    *hosts_p = (struct run_hosts){0};
    int rc = read_lines(stream, path, hosts_p);
    if (rc != 0)
        run_hosts_free(hosts_p);
    return rc;
}

int run_hosts_read(const char *path, struct run_hosts *hosts_p)
{
    FILE *file = fopen(path, "re");

    *hosts_p = (struct run_hosts){0};
    if (!file)
        return run_fail("--hostfile %s: %s", path, strerror(errno));
    int rc = run_hosts_read_stream(file, path, hosts_p);
    fclose(file);
    return rc;
}

static int deal_per_node(struct run_hosts *hosts, int per_node)
{
    for (int i = 0; i < hosts->n; i++) {
        struct run_host *host = &hosts->host[i];
        if (host->room && host->room < per_node)
            return run_fail("host %s takes %d ranks, but each node gets %d", host->name, host->room,
                            per_node);
        host->ranks = per_node;
    }
    return 0;
}

int run_hosts_deal(struct run_hosts *hosts, int ranks, int per_node)
{
    int left = ranks;

    if (per_node)
        return deal_per_node(hosts, per_node);
    for (int i = 0; i < hosts->n; i++) {
        struct run_host *host = &hosts->host[i];
        int room = host->room;
        if (!room)
            room = ranks / hosts->n + (i < ranks % hosts->n);
        host->ranks = room < left ? room : left;
        left -= host->ranks;
    }
    if (left)
        return run_fail("the hosts take %d ranks, but there are %d", ranks - left, ranks);
    while (hosts->host[hosts->n - 1].ranks == 0)
        free(hosts->host[--hosts->n].name);
    return 0;
}

void run_hosts_free(struct run_hosts *hosts)
{
    for (int i = 0; i < hosts->n; i++)
        free(hosts->host[i].name);
    free(hosts->host);
    *hosts = (struct run_hosts){0};
}
