/* SPDX-License-Identifier: Apache-2.0 */
/* Which TCP sockets there are, as /proc shows them: see stranger.h. */
#include "stranger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* States, as the kernel numbers them. */
enum { ESTABLISHED = 1, CLOSE_WAIT = 8, LISTEN = 10 };

struct row {
    char address[33]; /* of the own end, in hexadecimal words of this machine */
    unsigned short port, peer_port;
    unsigned state;
};

static bool is_among(const struct stranger_ports *ports, unsigned short port)
{
    return port >= ports->first && port <= ports->last;
}

/* A listener's address, as one can connect to it from its own host. */
static void read_address(const struct row *row, struct sockaddr_storage *address_p)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(row->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(row->port)};
    bool is_v4 = strlen(row->address) == 8;
    uint32_t words[4] = {0};
    bool any = true;

    for (int i = 0; i < (is_v4 ? 1 : 4); i++) {
        sscanf(row->address + (size_t)i * 8, "%8x", &words[i]);
        any &= words[i] == 0;
    }
    memset(address_p, 0, sizeof *address_p);
    if (any) /* both kinds come in there */
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else if (is_v4)
        v4.sin_addr.s_addr = words[0];
    else
        memcpy(&v6.sin6_addr, words, sizeof words);
    if (any || is_v4)
        memcpy(address_p, &v4, sizeof v4);
    else
        memcpy(address_p, &v6, sizeof v6);
}

/* Count rows of one table, adding to *n_p; false if there is no such table. */
static bool walk(const char *path, const struct stranger_ports *ports, bool listeners, int index,
                 struct sockaddr_storage *address_p, int *n_p)
{
    FILE *table = fopen(path, "r");
    char line[256];

    if (table == NULL)
        return false;
    while (fgets(line, sizeof line, table) != NULL) {
        struct row row;
        if (sscanf(line, "%*d: %32[0-9A-F]:%hx %*32[0-9A-F]:%hx %x", row.address, &row.port,
                   &row.peer_port, &row.state) != 4)
            continue;
        if (listeners && row.state == LISTEN && is_among(ports, row.port)) {
            if ((*n_p)++ == index && address_p != NULL)
                read_address(&row, address_p);
        }
        if (!listeners && (row.state == ESTABLISHED || row.state == CLOSE_WAIT) &&
            (is_among(ports, row.port) || is_among(ports, row.peer_port)))
            (*n_p)++;
    }
    fclose(table);
    return true;
}

static int count(const struct stranger_ports *ports, bool listeners, int index,
                 struct sockaddr_storage *address_p)
{
    int n = 0;
    bool some = walk("/proc/self/net/tcp", ports, listeners, index, address_p, &n);

    some |= walk("/proc/self/net/tcp6", ports, listeners, index, address_p, &n);
    return some ? n : -1;
}

int stranger_listeners(const struct stranger_ports *ports, int index,
                       struct sockaddr_storage *address_p)
{
    return count(ports, true, index, address_p);
}

int stranger_connections(const struct stranger_ports *ports)
{
    return count(ports, false, 0, NULL);
}
