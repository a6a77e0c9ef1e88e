/* SPDX-License-Identifier: Apache-2.0 */
/* RoCE: packet size, and protection against packet loss. */
#include <stdio.h>
#include <string.h>

#include "rdma.h"

static void say_mtu(struct doctor *doctor, const struct doctor_port *port)
{
    long long mtu;

    if (port->is_active != 1)
        return;
    if (port->is_ethernet == 0) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s:%s: its subnet manager decides", port->device,
                   port->number);
        doctor_mend(doctor, "ibv_devinfo -d %s | grep active_mtu   # 4096 is best", port->device);
    } else if (port->is_elsewhere) {
        doctor_say(doctor, DOCTOR_UNKNOWN,
                   "%s:%s: its interface %s is in another network namespace", port->device,
                   port->number, port->netdev);
        doctor_mend(doctor, "%s", "");
    } else if (!*port->netdev ||
               !doctor_read_number(doctor, &mtu, "/sys/class/net/%s/mtu", port->netdev) ||
               mtu <= 0) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s:%s: its interface does not report it", port->device,
                   port->number);
    } else {
        /* A packet of 4096 bytes has up to 82 bytes of headers in an Ethernet frame. */
        doctor_say(doctor, mtu >= 4178 ? DOCTOR_PASSED : DOCTOR_WARNED,
                   "%s:%s: MTU %lld of %s, so packets of %d bytes at most", port->device,
                   port->number, mtu, port->netdev,
                   mtu >= 4178   ? 4096
                   : mtu >= 2130 ? 2048
                   : mtu >= 1106 ? 1024
                                 : 512);
        if (mtu < 4178)
            doctor_mend(doctor, "ip link set %s mtu 9000   # and at the switch", port->netdev);
    }
}

void doctor_look_mtu(struct doctor *doctor)
{
    doctor_ports(doctor, say_mtu);
}

/* Lossless traffic classes concern hardware NICs only. */
static int is_card(const struct doctor *doctor, const struct doctor_port *port)
{
    char address[DOCTOR_NAME];

    return port->is_active == 1 && port->is_ethernet == 1 && !port->is_iwarp &&
           doctor_nic_pci(doctor, port->device, address, sizeof address);
}

static void say_pfc(struct doctor *doctor, const struct doctor_port *port)
{
    unsigned priorities;

    if (!is_card(doctor, port))
        return;
    if (!*port->netdev || !doctor_read_pfc(doctor, port->netdev, &priorities)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s:%s: the driver does not report it", port->device,
                   port->number);
        return;
    }
    if (priorities == 0) {
        doctor_say(doctor, DOCTOR_WARNED, "%s:%s: %s has it for no priority", port->device,
                   port->number, port->netdev);
        doctor_mend(doctor, "mlnx_qos -i %s --trust dscp --pfc 0,0,0,1,0,0,0,0", port->netdev);
        return;
    }
    doctor_say(doctor, DOCTOR_PASSED, "%s:%s: %s has it for priorities by the mask %#x",
               port->device, port->number, port->netdev, priorities);
}

void doctor_look_pfc(struct doctor *doctor)
{
    doctor_ports(doctor, say_pfc);
}

/* Return how many of eight priorities have it, at one end of a connection or the other; -1:
 * unknown. */
static int count_ecn(const struct doctor *doctor, const char *netdev, const char *end)
{
    int n = 0;

    for (int i = 0; i < 8; i++) {
        long long on;
        if (!doctor_read_number(doctor, &on, "/sys/class/net/%s/ecn/%s/enable/%d", netdev, end, i))
            return -1;
        n += on == 1;
    }
    return n;
}

static void say_ecn(struct doctor *doctor, const struct doctor_port *port)
{
    if (!is_card(doctor, port))
        return;
    int receives = *port->netdev ? count_ecn(doctor, port->netdev, "roce_np") : -1;
    int sends = *port->netdev ? count_ecn(doctor, port->netdev, "roce_rp") : -1;
    if (receives < 0 || sends < 0) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s:%s: the driver does not report it", port->device,
                   port->number);
        return;
    }
    doctor_say(doctor, receives && sends ? DOCTOR_PASSED : DOCTOR_WARNED,
               "%s:%s: %d priorities notify of congestion, %d slow down", port->device,
               port->number, receives, sends);
    if (!receives || !sends)
        doctor_mend(doctor,
                    "for e in np rp; do echo 1 >/sys/class/net/%s/ecn/roce_$e/enable/3; done",
                    port->netdev);
}

void doctor_look_ecn(struct doctor *doctor)
{
    doctor_ports(doctor, say_ecn);
}

static void say_loss(struct doctor *doctor, const struct doctor_port *port)
{
    static const char *const counters[] = {"hw_counters/out_of_sequence",
                                           "hw_counters/packet_seq_err",
                                           "hw_counters/local_ack_timeout_err",
                                           "hw_counters/out_of_buffer",
                                           "counters/symbol_error",
                                           "counters/link_downed",
                                           "counters/port_rcv_errors"};
    int n_read = 0, n_bad = 0;

    if (port->is_active != 1)
        return;
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        long long value;
        if (!doctor_read_number(doctor, &value, "/sys/class/infiniband/%s/ports/%s/%s",
                                port->device, port->number, counters[i]))
            continue;
        n_read++;
        if (value == 0)
            continue;
        n_bad++;
        doctor_say(doctor, DOCTOR_WARNED, "%s:%s: %s is %lld since the driver was loaded",
                   port->device, port->number, strchr(counters[i], '/') + 1, value);
    }
    if (!n_read)
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s:%s has no counters of it", port->device,
                   port->number);
    else if (!n_bad)
        doctor_say(doctor, DOCTOR_PASSED, "%s:%s: %d counters of it are 0", port->device,
                   port->number, n_read);
}

void doctor_look_loss(struct doctor *doctor)
{
    doctor_ports(doctor, say_loss);
}
