/* SPDX-License-Identifier: Apache-2.0 */
#include "resolve.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "fail.h"
#include "hosts.h"
#include "probe.h"

enum { SSH_TIMEOUT_MS = 5000, SSH_SAID_MAX = 32768, NAME_MAX_BYTES = 256 };

/* Each variable means that something other than ssh may reach the hosts: a resource manager, or
 * the user's replacement of ssh. */
static const char *const others[] = {
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "PE_HOSTFILE",
    "OMPI_MCA_plm",
    "OMPI_MCA_plm_rsh_agent",
    "PRTE_MCA_plm",
    "PRTE_MCA_plm_ssh_agent",
    "HYDRA_LAUNCHER",
    "HYDRA_LAUNCHER_EXEC",
    "HYDRA_BOOTSTRAP",
    "HYDRA_BOOTSTRAP_EXEC",
    "HYDRA_RMK",
    "I_MPI_HYDRA_BOOTSTRAP",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
    "I_MPI_HYDRA_RMK",
};

/* The same as an option of the launcher. */
static const char *const other_words[] = {"plm", "launcher", "bootstrap", "rmk"};

static int is_left_to_ssh(const struct run_options *options, const struct run_launcher *launcher,
                          char *const *environment)
{
    if (launcher->kind == RUN_SLURM)
        return 0;
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (run_env_get(environment, others[i]))
            return 0;
    for (int i = 0; i < options->pass.n; i++)
        for (size_t k = 0; k < sizeof(other_words) / sizeof(*other_words); k++)
            if (strstr(options->pass.word[i], other_words[k]))
                return 0;
    return 1;
}

/* Returns 0, or getaddrinfo's error. */
static int look_up(const char *name)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(name, NULL, &hints, &found);

    if (code == 0)
        freeaddrinfo(found);
    return code;
}

/* Get the value of @a key among lines of "key value"; returns 0 if there is none. */
static int find_value(const char *lines, const char *key, char value_p[NAME_MAX_BYTES])
{
    size_t bytes = strlen(key);

    for (const char *line = lines; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, bytes) != 0 || line[bytes] != ' ')
            continue;
        line += bytes + 1;
        snprintf(value_p, NAME_MAX_BYTES, "%.*s", (int)strcspn(line, "\n"), line);
        return 1;
    }
    return 0;
}

/* Whether the user's ssh configuration overrides the name: it maps the name to another, or looks
 * it up elsewhere. */
static int ssh_knows(const char *name)
{
    char said[SSH_SAID_MAX], value[NAME_MAX_BYTES];
    char *const argv[] = {(char *)"ssh", (char *)"-G", (char *)name, NULL};

    if (run_probe(argv, SSH_TIMEOUT_MS, said, sizeof(said)) != 0)
        return 0;
    if (find_value(said, "proxyjump", value) || find_value(said, "proxycommand", value))
        return strcmp(value, "none") != 0;
    return find_value(said, "hostname", value) && strcmp(value, name) != 0 && look_up(value) == 0;
}

int run_resolve_hosts(const struct run_options *options, const struct run_launcher *launcher,
                      char *const *environment)
{
    struct run_hosts hosts = {0};
    int rc = 0;

    if (!is_left_to_ssh(options, launcher, environment))
        return 0;
    if (options->hosts)
        rc = run_hosts_parse(options->hosts, &hosts);
    else if (options->hostfile)
        rc = run_hosts_read(options->hostfile, &hosts);
    for (int i = 0; i < hosts.n && rc == 0; i++) {
        const char *name = hosts.host[i].name;
        int code = look_up(name);
        if (code != 0 && !ssh_knows(name))
            rc = run_fail("%s: host %s has no address: %s",
                          options->hosts ? "--hosts" : options->hostfile, name, gai_strerror(code));
    }
    run_hosts_free(&hosts);
    return rc;
}
