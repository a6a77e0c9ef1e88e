/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices, their ports and addresses. */
#include "rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RDMA "/sys/class/infiniband"

enum { GIDS = 256 };

/* Whether an interface is in this process's network namespace: /sys may show RDMA devices of all
 * namespaces, and interfaces of another one. */
static int has_interface(const struct doctor *doctor, const char *name)
{
    char elsewhere[DOCTOR_NAME];

    if (!doctor_is_test(doctor))
        return if_nametoindex(name) != 0;
    return doctor_read_tried(doctor, elsewhere, sizeof elsewhere, "elsewhere") <= 0 ||
           strcmp(elsewhere, name) != 0;
}

static void read_port(const struct doctor *doctor, struct doctor_port *port)
{
    char layer[DOCTOR_NAME];
    const char *device = port->device, *number = port->number;

    doctor_read(doctor, layer, sizeof layer, RDMA "/%s/ports/%s/link_layer", device, number);
    port->is_ethernet = strcmp(layer, "Ethernet") == 0     ? 1
                        : strcmp(layer, "InfiniBand") == 0 ? 0
                                                           : -1;
    port->is_active = doctor_read(doctor, port->state, sizeof port->state,
                                  RDMA "/%s/ports/%s/state", device, number) > 0
                          ? strncmp(port->state, "4:", 2) == 0
                          : -1;
    port->is_iwarp = doctor_read(doctor, layer, sizeof layer, RDMA "/%s/node_type", device) > 0 &&
                     strncmp(layer, "4:", 2) == 0;
    *port->netdev = '\0';
    for (int i = 0; i < GIDS && port->is_ethernet == 1; i++) {
        if (doctor_read(doctor, port->netdev, sizeof port->netdev,
                        RDMA "/%s/ports/%s/gid_attrs/ndevs/%d", device, number, i) > 0)
            break;
    }
    /* The name becomes part of paths and commands. */
    if (strchr(port->netdev, '/') || *port->netdev == '.' || strlen(port->netdev) > 15 ||
        port->netdev[strcspn(port->netdev, " '\"\\$`;&|<>()*?\n")])
        *port->netdev = '\0';
    doctor_clean(port->netdev);
    port->is_elsewhere = *port->netdev && !has_interface(doctor, port->netdev);
}

int doctor_ports(struct doctor *doctor,
                 void (*say)(struct doctor *doctor, const struct doctor_port *port))
{
    struct doctor_names devices, numbers;
    int n = 0;

    doctor_list(doctor, &devices, RDMA);
    for (size_t i = 0; i < devices.n; i++) {
        doctor_list(doctor, &numbers, RDMA "/%s/ports", devices.name[i]);
        for (size_t k = 0; k < numbers.n; k++) {
            struct doctor_port port = {.device = devices.name[i], .number = numbers.name[k]};
            read_port(doctor, &port);
            say(doctor, &port);
            n++;
        }
    }
    doctor_say_cut(doctor, &devices, "RDMA devices");
    return n;
}

/* Tried by opening: a network namespace, a control group or a mount can forbid what the file
 * mode allows. */
static int can_open(const char *path)
{
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Report the device file that a program opens, and whether it may. */
static void say_device(struct doctor *doctor, const char *device, const struct doctor_names *verbs)
{
    char text[DOCTOR_NAME], path[PATH_MAX], version[DOCTOR_NAME];
    int unreadable = 0;

    doctor_read(doctor, version, sizeof version, RDMA "/%s/fw_ver", device);
    for (size_t i = 0; i < verbs->n; i++) {
        if (doctor_read(doctor, text, sizeof text, "/sys/class/infiniband_verbs/%s/ibdev",
                        verbs->name[i]) <= 0) {
            unreadable += strncmp(verbs->name[i], "uverbs", 6) == 0;
            continue;
        }
        if (strcmp(text, device) != 0)
            continue;
        snprintf(path, sizeof path, "%s/dev/infiniband/%s", doctor->root, verbs->name[i]);
        if (access(path, F_OK) != 0) {
            doctor_say(doctor, DOCTOR_FAILED, "%s: there is no /dev/infiniband/%s", device,
                       verbs->name[i]);
        } else if (!can_open(path)) {
            doctor_say(doctor, DOCTOR_FAILED, "%s: /dev/infiniband/%s may not be opened: %s",
                       device, verbs->name[i], strerror(errno));
            if (errno == EACCES)
                doctor_mend(doctor, "chmod 666 /dev/infiniband/%s", verbs->name[i]);
        } else {
            doctor_say(doctor, DOCTOR_PASSED, "%s, firmware %s, by /dev/infiniband/%s", device,
                       *version ? version : "unknown", verbs->name[i]);
        }
        return;
    }
    if (unreadable) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s: its device file is not reported", device);
        return;
    }
    doctor_say(doctor, DOCTOR_FAILED, "%s: programs have no access to it", device);
    doctor_mend(doctor, "modprobe ib_uverbs");
}

void doctor_look_rdma(struct doctor *doctor)
{
    struct doctor_names devices, verbs;

    doctor_list(doctor, &devices, RDMA);
    doctor_list(doctor, &verbs, "/sys/class/infiniband_verbs");
    for (size_t i = 0; i < devices.n; i++)
        say_device(doctor, devices.name[i], &verbs);
    doctor_say_cut(doctor, &devices, "RDMA devices");
    if (devices.n)
        return;
    if (!doctor_exists(doctor, "/sys/class")) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "there is no /sys");
        return;
    }
    doctor_say(doctor, DOCTOR_WARNED, "none: traffic to other hosts uses TCP");
    doctor_mend(doctor,
                "lspci | grep -i -e mellanox -e infiniband   # if there is one: modprobe mlx5_ib");
}

static void say_state(struct doctor *doctor, const struct doctor_port *port)
{
    const char *device = port->device, *number = port->number;

    if (port->is_active < 0) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s:%s does not report its state", device, number);
    } else if (port->is_active) {
        doctor_say(doctor, DOCTOR_PASSED, "%s:%s is active%s%s", device, number,
                   *port->netdev ? " on " : "", port->netdev);
    } else if (strncmp(port->state, "2:", 2) == 0 && port->is_ethernet == 0) {
        doctor_say(doctor, DOCTOR_FAILED, "%s:%s waits for a subnet manager (%s)", device, number,
                   port->state);
        doctor_mend(doctor, "systemctl start opensm   # on one host of the fabric");
    } else {
        doctor_say(doctor, DOCTOR_FAILED, "%s:%s is %s", device, number, port->state);
        if (*port->netdev)
            doctor_mend(doctor, "ip link set %s up", port->netdev);
    }
}

/* A NIC with two ports, one of them unused, is not a failure. */
void doctor_look_port(struct doctor *doctor)
{
    size_t first = doctor->n;
    int active = 0;

    doctor_ports(doctor, say_state);
    for (size_t i = first; i < doctor->n; i++)
        active += doctor->findings[i].state == DOCTOR_PASSED;
    for (size_t i = first; i < doctor->n && active; i++)
        if (doctor->findings[i].state == DOCTOR_FAILED)
            doctor->findings[i].state = DOCTOR_WARNED;
}

static double most_gbits;

static void say_rate(struct doctor *doctor, const struct doctor_port *port)
{
    char text[DOCTOR_NAME], address[DOCTOR_NAME];
    double rate;
    int lanes;

    if (port->is_active != 1)
        return;
    if (doctor_read(doctor, text, sizeof text, RDMA "/%s/ports/%s/rate", port->device,
                    port->number) <= 0 ||
        sscanf(text, "%8lf Gb/sec (%3dX", &rate, &lanes) != 2 || !(rate > 0 && rate < 1e5) ||
        lanes <= 0) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s:%s does not report its rate", port->device,
                   port->number);
        return;
    }
    if (!doctor_nic_pci(doctor, port->device, address, sizeof address)) {
        doctor_say(doctor, DOCTOR_WARNED, "%s:%s is software: processors do its work", port->device,
                   port->number);
        doctor_mend(doctor, "%s", "");
        return;
    }
    int is_narrow = lanes < 4 && port->is_ethernet == 0;
    doctor_say(doctor, rate < 25 || rate < most_gbits || is_narrow ? DOCTOR_WARNED : DOCTOR_PASSED,
               "%s:%s at %s%s", port->device, port->number, text,
               rate < most_gbits ? ", slower than another port"
               : is_narrow       ? ", on fewer lanes than four"
                                 : "");
}

static void find_most(struct doctor *doctor, const struct doctor_port *port)
{
    char text[DOCTOR_NAME];
    double rate;

    if (port->is_active == 1 &&
        doctor_read(doctor, text, sizeof text, RDMA "/%s/ports/%s/rate", port->device,
                    port->number) > 0 &&
        sscanf(text, "%8lf", &rate) == 1 && rate > most_gbits && rate < 1e5)
        most_gbits = rate;
}

void doctor_look_rate(struct doctor *doctor)
{
    size_t before = doctor->n;

    most_gbits = 0;
    doctor_ports(doctor, find_most);
    doctor->n = before; /* the next call reports the same of the list */
    doctor_ports(doctor, say_rate);
}

/* The address types of a RoCE port. */
struct addresses {
    int n, n_v2, first_ipv4, first_local, unreadable;
};

static void read_address(const struct doctor *doctor, const struct doctor_port *port, int index,
                         struct addresses *addresses)
{
    static const char ipv4[] = "0000:0000:0000:0000:0000:ffff:";
    static const char none[] = "0000:0000:0000:0000:0000:0000:0000:0000";
    char gid[DOCTOR_NAME], type[DOCTOR_NAME];

    if (doctor_read(doctor, gid, sizeof gid, RDMA "/%s/ports/%s/gids/%d", port->device,
                    port->number, index) <= 0) {
        addresses->unreadable++;
        return;
    }
    if (strcmp(gid, none) == 0)
        return;
    if (strlen(gid) != strlen(none) || gid[strspn(gid, "0123456789abcdef:")]) {
        addresses->unreadable++;
        return;
    }
    addresses->n++;
    if (doctor_read(doctor, type, sizeof type, RDMA "/%s/ports/%s/gid_attrs/types/%d", port->device,
                    port->number, index) <= 0) {
        addresses->unreadable++;
        return;
    }
    if (strcmp(type, "RoCE v2") != 0)
        return;
    addresses->n_v2++;
    if (strncmp(gid, ipv4, strlen(ipv4)) == 0 && addresses->first_ipv4 < 0)
        addresses->first_ipv4 = index;
    if (strncmp(gid, "fe80:", 5) == 0)
        addresses->first_local = index;
}

/* Only a hardware iWARP device reveals its interface. */
static void say_iwarp(struct doctor *doctor, const struct doctor_port *port)
{
    struct doctor_names names;
    int has = 0;

    doctor_list(doctor, &names, RDMA "/%s/device/net", port->device);
    for (size_t i = 0; i < names.n; i++)
        has = has || has_interface(doctor, names.name[i]);
    doctor_say(doctor, has ? DOCTOR_PASSED : DOCTOR_UNKNOWN,
               "%s:%s is iWARP, which uses the addresses of its interface%s", port->device,
               port->number, has ? "" : ", which are not reported here");
}

static void say_gid(struct doctor *doctor, const struct doctor_port *port)
{
    struct addresses found = {.first_ipv4 = -1, .first_local = -1};
    const char *device = port->device, *number = port->number;
    const char *netdev = *port->netdev ? port->netdev : "IF";

    if (port->is_active != 1)
        return;
    if (port->is_elsewhere) {
        doctor_say(
            doctor, DOCTOR_FAILED,
            "%s:%s: its interface %s is in another network namespace, and so are its addresses",
            device, number, netdev);
        doctor_mend(doctor, "docker run --network=host ..., hostNetwork of a pod, or a CNI plugin "
                            "that gives it the interface");
        return;
    }
    for (int i = 0;
         i < GIDS && doctor_exists(doctor, RDMA "/%s/ports/%s/gids/%d", device, number, i); i++)
        read_address(doctor, port, i, &found);
    if (port->is_iwarp) {
        say_iwarp(doctor, port);
    } else if (port->is_ethernet != 1) {
        doctor_say(doctor, found.n && port->is_ethernet == 0 ? DOCTOR_PASSED : DOCTOR_UNKNOWN,
                   "%s:%s has %d addresses%s", device, number, found.n,
                   port->is_ethernet < 0 ? "; the kind of its link cannot be read" : "");
    } else if (found.first_ipv4 >= 0) {
        doctor_say(doctor, DOCTOR_PASSED, "%s:%s: address %d is RoCE v2 over IPv4", device, number,
                   found.first_ipv4);
    } else if (found.unreadable) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s:%s: %d of its addresses cannot be read", device,
                   number, found.unreadable);
    } else if (!found.n) {
        doctor_say(doctor, DOCTOR_FAILED, "%s:%s has no address", device, number);
        doctor_mend(doctor, "ip link set %s up && ip addr add ADDRESS/24 dev %s", netdev, netdev);
    } else if (!found.n_v2) {
        doctor_say(doctor, DOCTOR_FAILED, "%s:%s has %d addresses, none of RoCE v2", device, number,
                   found.n);
        doctor_mend(doctor, "cma_roce_mode -d %s -p %s -m 2", device, number);
    } else {
        doctor_say(doctor, DOCTOR_WARNED, "%s:%s has RoCE v2, but not over IPv4%s", device, number,
                   found.first_local >= 0 && found.n_v2 == 1
                       ? ": link-local only, which no router forwards"
                       : "");
        doctor_mend(doctor, "ip addr add ADDRESS/24 dev %s", netdev);
    }
}

void doctor_look_gid(struct doctor *doctor)
{
    doctor_ports(doctor, say_gid);
}
