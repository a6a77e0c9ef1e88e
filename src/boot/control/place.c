/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/control/place.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"

enum { PORT_MAX = UINT16_MAX, SIZE_LIMIT = 65536, SHOWN_MAX = 64 };

bool stepaf_place_is_torch(void)
{
    return getenv("RANK") && getenv("WORLD_SIZE") && getenv("MASTER_ADDR") && getenv("MASTER_PORT");
}

/* Parse digits only, at most @a max; returns -1 if @a text is anything else. */
static long number_of(const char *text, long max)
{
    char *end;

    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    long number = strtol(text, &end, 10);
    return *end || errno || number > max ? -1 : number;
}

static stepaf_status_t refuse_variable(const char *name, const char *value, const char *takes)
{
    return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT, "%s=%.*s: it takes %s", name,
                            SHOWN_MAX, value, takes);
}

bool stepaf_place_split(const char *text, char *host_p, uint16_t *port_p)
{
    const char *colon = strrchr(text, ':');
    const char *host = text;
    const char *end = colon;

    if (!colon)
        return false;
    if (*text == '[') {
        host = text + 1;
        end = colon - 1;
        if (end < host || *end != ']')
            return false;
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return false; /* an address without brackets: where its port begins is unclear */
    }
    long port = number_of(colon + 1, PORT_MAX);
    size_t bytes = (size_t)(end - host);
    if (port < 1 || bytes < 1 || bytes > STEPAF_PLACE_HOST_MAX)
        return false;
    memcpy(host_p, host, bytes);
    host_p[bytes] = '\0';
    *port_p = (uint16_t)port;
    return true;
}

/* Take the meeting point from torchrun's variables, with a port other than the one at which
 * torchrun's agent, or rank 0 of torch.distributed, listens. */
static stepaf_status_t take_master(struct stepaf_place *place)
{
    const char *host = getenv("MASTER_ADDR");
    const char *text = getenv("MASTER_PORT");
    long port = text ? number_of(text, PORT_MAX) : -1;

    if (!host || !text)
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                "STEPAF_MEET is not set: a job without a launcher requires the "
                                "address of rank 0, as host:port");
    if (strlen(host) < 1 || strlen(host) > STEPAF_PLACE_HOST_MAX)
        return refuse_variable("MASTER_ADDR", host, "the name or address of a host");
    if (port < 1)
        return refuse_variable("MASTER_PORT", text, "a port, 1 to 65535");
    snprintf(place->host, sizeof place->host, "%s", host);
    port += port + STEPAF_PLACE_TORCH_PORTS > PORT_MAX ? -STEPAF_PLACE_TORCH_PORTS
                                                       : STEPAF_PLACE_TORCH_PORTS;
    place->port = (uint16_t)port;
    return STEPAF_OK;
}

static stepaf_status_t find_meet(const struct stepaf_env *env, struct stepaf_place *place)
{
    if (*env->meet && !stepaf_place_split(env->meet, place->host, &place->port))
        return refuse_variable("STEPAF_MEET", env->meet, "host:port or [address]:port");
    stepaf_status_t status = *env->meet ? STEPAF_OK : take_master(place);
    if (status != STEPAF_OK)
        return status;
    bool is_v6 = strchr(place->host, ':') != NULL;
    uint8_t address[4];
    snprintf(place->meet, sizeof place->meet, is_v6 ? "[%s]:%u" : "%s:%u", place->host,
             place->port);
    place->is_loopback = strcmp(place->host, "localhost") == 0 || strcmp(place->host, "::1") == 0 ||
                         (inet_pton(AF_INET, place->host, &address) == 1 && address[0] == 127);
    return STEPAF_OK;
}

/* Return the ordinal of a StatefulSet pod. Pods are called NAME-0, NAME-1 and so on, with or
 * without a domain after the name; the meeting point is the first. -1: the host is none of them. */
static long ordinal_of(const char *host_name, const char *meet_host)
{
    size_t label = strcspn(meet_host, "."), length = strcspn(host_name, ".");
    char name[STEPAF_PLACE_HOST_MAX + 1];

    if (length > STEPAF_PLACE_HOST_MAX)
        return -1;
    memcpy(name, host_name, length);
    name[length] = '\0';
    const char *dash = strrchr(name, '-');
    size_t stem = dash ? (size_t)(dash - name) + 1 : 0; /* with the dash */
    if (stem < 2 || label != stem + 1 || meet_host[stem] != '0' ||
        memcmp(name, meet_host, stem) != 0)
        return -1;
    return number_of(dash + 1, SIZE_LIMIT);
}

static stepaf_status_t find_numbers(const struct stepaf_env *env, const char *host_name, int room,
                                    struct stepaf_place *place)
{
    const char *rank_text = getenv("RANK");
    const char *size_text = getenv("WORLD_SIZE");
    long size = env->size, rank = env->rank;

    if (!size && size_text && (size = number_of(size_text, SIZE_LIMIT)) < 1)
        return refuse_variable("WORLD_SIZE", size_text, "the number of processes, 1 to 65536");
    if (!size)
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                "STEPAF_SIZE is not set: the ranks that meet at %s require the "
                                "number of processes of the job",
                                place->meet);
    if (!env->from_environment[STEPAF_ENV_RANK]) {
        rank = rank_text ? number_of(rank_text, SIZE_LIMIT) : ordinal_of(host_name, place->host);
        if (rank < 0 && rank_text)
            return refuse_variable("RANK", rank_text, "the number of this process, from 0");
        if (rank < 0)
            return stepaf_error_set(
                STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                "STEPAF_RANK is not set: each rank that meets at %s requires its number, from 0",
                place->meet);
    }
    if (rank >= size + room)
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                "rank %ld (STEPAF_RANK) of %ld (STEPAF_SIZE)%s: ranks are 0 to %ld",
                                rank, size, room ? " and room for more (STEPAF_ROOM_*)" : "",
                                size + room - 1);
    place->rank = (int)rank;
    place->size = (int)size + room;
    return STEPAF_OK;
}

static stepaf_status_t refuse_secret_file(const char *path, const char *why)
{
    return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT, "STEPAF_SECRET_FILE=%.128s: %s",
                            path, why);
}

/* Read the file without the end of its line; return the number of bytes, -1 if the file was
 * rejected. */
static ssize_t read_secret(const char *path, char *secret_p, stepaf_status_t *status_p)
{
    int fd = stepaf_fd_open(path, O_RDONLY | O_NONBLOCK);
    const char *why = NULL;
    ssize_t bytes = -1;
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0)
        why = strerror(errno);
    else if (!S_ISREG(info.st_mode))
        why = "not a regular file";
    else if (info.st_mode & (S_IRWXO | S_IWGRP))
        why = "other users can read it, or its group can write it: chmod 600";
    else if ((bytes = read(fd, secret_p, STEPAF_PLACE_SECRET_MAX + 1)) < 0)
        why = strerror(errno);
    while (bytes > 0 && (secret_p[bytes - 1] == '\n' || secret_p[bytes - 1] == '\r'))
        bytes--;
    if (!why && (bytes < 1 || bytes > STEPAF_PLACE_SECRET_MAX))
        why = bytes < 1 ? "the file is empty" : "the file is longer than 1024 bytes";
    *status_p = why ? refuse_secret_file(path, why) : STEPAF_OK;
    if (fd >= 0)
        close(fd);
    return why ? -1 : bytes;
}

stepaf_status_t stepaf_place_find_secret(const struct stepaf_env *env, struct stepaf_place *place)
{
    char secret[STEPAF_PLACE_SECRET_MAX + 1];
    stepaf_status_t status = STEPAF_OK;

    if (!stepaf_proof_ready())
        return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                "tcp bootstrap: cannot initialize libsodium");
    if (*env->secret && *env->secret_file)
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                "STEPAF_SECRET and STEPAF_SECRET_FILE exclude each other");
    place->has_secret = *env->secret || *env->secret_file;
    if (!*env->secret_file) {
        stepaf_proof_key(env->secret, strlen(env->secret), place->key);
        return STEPAF_OK;
    }
    ssize_t bytes = read_secret(env->secret_file, secret, &status);
    if (bytes > 0)
        stepaf_proof_key(secret, (size_t)bytes, place->key);
    stepaf_proof_forget(secret, sizeof secret);
    return status;
}

stepaf_status_t stepaf_place_find(const struct stepaf_env *env, const char *host_name,
                                  struct stepaf_place *place_p)
{
    struct stepaf_place place = {0};
    stepaf_status_t status = find_meet(env, &place);

    if (status == STEPAF_OK)
        status = find_numbers(env, host_name, 0, &place);
    if (status == STEPAF_OK)
        status = stepaf_place_find_secret(env, &place);
    if (status != STEPAF_OK)
        return status;
    (void)stepaf_env_ports(env->net_ports, &place.first_port, &place.last_port);
    *place_p = place;
    return STEPAF_OK;
}

stepaf_status_t stepaf_place_return(const struct stepaf_env *env, const char *host_name,
                                    struct stepaf_place *place_p)
{
    struct stepaf_place place = {0};

    snprintf(place.meet, sizeof place.meet, "%.*s", SHOWN_MAX, env->join);
    /* The host names of a StatefulSet give a rank if the first address is that of its first
     * host. */
    size_t first = strcspn(env->join, ":");
    if (first <= STEPAF_PLACE_HOST_MAX)
        memcpy(place.host, env->join, first);
    stepaf_status_t status =
        find_numbers(env, host_name, (int)(env->room_attention + env->room_ffn), &place);
    if (status == STEPAF_OK)
        status = stepaf_place_find_secret(env, &place);
    if (status == STEPAF_OK && !place.has_secret)
        status = stepaf_error_set(
            STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
            "STEPAF_JOIN is set, but neither STEPAF_SECRET nor STEPAF_SECRET_FILE: a process can "
            "take a lost rank's place only in a job that has a secret");
    if (status == STEPAF_OK)
        *place_p = place;
    return status;
}
