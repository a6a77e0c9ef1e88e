/* SPDX-License-Identifier: Apache-2.0 */
/* A network that is slow by the kernel's netem. One tc takes all commands, so that each is done at
 * once. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "verdict.h"

enum { BACK = 1, WAYS, NAME = 16 };

static FILE *tc;
static FILE *answers; /* what it prints */
static char interfaces[WAYS][VD_RAILS][NAME];

static void name_interfaces(char (*names)[NAME], const char *list)
{
    for (int i = 0; i < VD_RAILS && *list; i++) {
        size_t bytes = strcspn(list, ",");
        snprintf(names[i], NAME, "%.*s", (int)bytes, list);
        list += bytes + (list[bytes] == ',');
    }
}

static void each(const char *verb, const char *what)
{
    for (int way = 0; way < WAYS; way++)
        for (int i = 0; i < VD_RAILS; i++)
            if (*interfaces[way][i])
                fprintf(tc, "qdisc %s dev %s root%s\n", verb, interfaces[way][i], what);
    fflush(tc);
}

bool vd_netem_open(const char *there, const char *back)
{
    char command[64];
    int out[2];

    (void)signal(SIGPIPE, SIG_IGN);
    if (pipe(out))
        return false;
    /* By its path: dash takes no number of two digits behind ">&". */
    snprintf(command, sizeof(command), "exec tc -force -batch - >/dev/fd/%d", out[1]);
    answers = fdopen(out[0], "r");
    tc = answers ? popen(command, "w") : NULL;
    close(out[1]);
    if (!tc)
        return false;
    name_interfaces(interfaces[0], there);
    name_interfaces(interfaces[BACK], back);
    each("replace", " netem limit 10000 delay 0");
    return true;
}

bool vd_netem_is_open(void)
{
    return tc != NULL;
}

/* Until tc has done all that it was told: it answers in turn, and that of lo is a line. Where
 * processors are busy it may be late by more than an operation takes. */
static void await_done(void)
{
    char line[256];

    fputs("qdisc show dev lo\n", tc);
    fflush(tc);
    (void)!fgets(line, sizeof(line), answers);
}

void vd_netem_delay(bool back, int rail, int64_t delay_ns)
{
    for (int i = 0; i < VD_RAILS; i++)
        if (*interfaces[back][i] && (rail == VD_ALL_RAILS || rail == i))
            fprintf(tc, "qdisc change dev %s root netem limit 10000 delay %lldus\n",
                    interfaces[back][i], (long long)delay_ns / 1000);
    await_done();
}

void vd_netem_close(void)
{
    if (!tc)
        return;
    each("del", "");
    (void)pclose(tc);
    fclose(answers);
    tc = NULL;
}
