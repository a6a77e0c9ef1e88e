/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of hosts, in a word and in a file, and how ranks are dealt to them. */
#include <unistd.h>

#include "fail.h"
#include "hosts.h"
#include "topo/tree.h"
#include "unit.h"

/* "name:room/ranks" of each host. */
static void expect(const struct run_hosts *hosts, const char *expected)
{
    char text[256] = "";
    size_t used = 0;
    for (int i = 0; i < hosts->n; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s:%d/%d", i ? " " : "",
                                 hosts->host[i].name, hosts->host[i].room, hosts->host[i].ranks);
    UNIT_STRING(text, expected);
}

static void lists(void)
{
    static const char *const good[][2] = {
        {"h1", "h1:0/0"},
        {"h1:4,h2:16", "h1:4/0 h2:16/0"},
        {"a-b.c_d,10.77.0.1", "a-b.c_d:0/0 10.77.0.1:0/0"},
        {"h1:1048576", "h1:1048576/0"},
    };
    static const char *const bad[][2] = {
        {"", "\"\" is not the name of a host"},
        {"h1,", "is not the name of a host"},
        {",h1", "is not the name of a host"},
        {"-x", "\"-x\" is not the name of a host"},
        {".x", "is not the name of a host"},
        {"h1 h2", "is not the name of a host"},
        {"h;reboot", "is not the name of a host"},
        {"h1:0", "is not HOST:N with N from 1"},
        {"h1:", "is not HOST:N"},
        {"h1:-1", "is not HOST:N"},
        {"h1:2x", "is not HOST:N"},
        {"h1:1048577", "is not HOST:N"},
        {"h1:99999999999999999999", "is not HOST:N"},
        {"h1:2:3", "is not HOST:N"},
        {"h1:2,h2", "give a number of ranks for all hosts"},
        {"h1,h2,h1", "h1 is listed twice"},
    };
    struct run_hosts hosts;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        CU_ASSERT_EQUAL_FATAL(run_hosts_parse(good[i][0], &hosts), 0);
        expect(&hosts, good[i][1]);
        run_hosts_free(&hosts);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        CU_ASSERT_EQUAL(run_hosts_parse(bad[i][0], &hosts), -1);
        UNIT_CONTAINS(run_fail_text(), bad[i][1]);
        CU_ASSERT_EQUAL(hosts.n, 0);
    }
}

static void files(void)
{
    static const char *const good[][2] = {
        {"h1 slots=4\nh2 slots=2\n", "h1:4/0 h2:2/0"},
        {"# all\n\n  h1:4  # first\r\nh2:1", "h1:4/0 h2:1/0"},
        {"h1\nh2\n", "h1:0/0 h2:0/0"},
    };
    static const char *const bad[][2] = {
        {"", "names no host"},
        {"# none\n", "names no host"},
        {"h1 4\n", "line 1: each line must be HOST"},
        {"h1 slots=\n", "each line must be HOST"},
        {"h1 slots=4 x\n", "each line must be HOST"},
        {"h1:2 slots=4\n", "each line must be HOST"},
        {"h1\nh2:4\n", "line 2: give a number"},
        {"h1\nh1\n", "line 2: h1 is listed twice"},
    };
    struct run_hosts hosts;
    char root[256];
    char path[300];
    char line[600];
    tree_make(root, sizeof root);
    snprintf(path, sizeof path, "%s/hosts", root);
    CU_ASSERT_EQUAL(run_hosts_read(path, &hosts), -1);
    UNIT_CONTAINS(run_fail_text(), "No such file");
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        tree_write(root, "hosts", good[i][0]);
        CU_ASSERT_EQUAL_FATAL(run_hosts_read(path, &hosts), 0);
        expect(&hosts, good[i][1]);
        run_hosts_free(&hosts);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        tree_write(root, "hosts", bad[i][0]);
        CU_ASSERT_EQUAL(run_hosts_read(path, &hosts), -1);
        UNIT_CONTAINS(run_fail_text(), bad[i][1]);
        CU_ASSERT_EQUAL(hosts.n, 0);
    }
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    tree_write(root, "hosts", line);
    CU_ASSERT_EQUAL(run_hosts_read(path, &hosts), -1);
    UNIT_CONTAINS(run_fail_text(), "too long");
    tree_remove(root);
}

struct deal {
    const char *list;
    int ranks;
    int per_node;
    const char *expected; /* NULL: refused */
};

static void deals(void)
{
    static const struct deal rows[] = {
        {"h1:4,h2:4", 6, 0, "h1:4/4 h2:4/2"},
        {"h1:4,h2:4", 8, 0, "h1:4/4 h2:4/4"},
        {"h1:4,h2:4", 4, 0, "h1:4/4"},
        {"h1,h2,h3", 7, 0, "h1:0/3 h2:0/2 h3:0/2"},
        {"h1,h2,h3", 2, 0, "h1:0/1 h2:0/1"},
        {"h1:4,h2:4", 9, 0, NULL},
        {"h1,h2", 6, 3, "h1:0/3 h2:0/3"},
        {"h1:4,h2:3", 6, 3, "h1:4/3 h2:3/3"},
        {"h1:4,h2:2", 6, 3, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct run_hosts hosts;
        CU_ASSERT_EQUAL_FATAL(run_hosts_parse(rows[i].list, &hosts), 0);
        int rc = run_hosts_deal(&hosts, rows[i].ranks, rows[i].per_node);
        CU_ASSERT_EQUAL(rc, rows[i].expected ? 0 : -1);
        if (rows[i].expected)
            expect(&hosts, rows[i].expected);
        run_hosts_free(&hosts);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {{"lists", lists}, {"files", files}, {"deals", deals}, CU_TEST_INFO_NULL};
    return unit_run(tests);
}
