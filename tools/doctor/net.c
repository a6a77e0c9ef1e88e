/* SPDX-License-Identifier: Apache-2.0 */
/* Network interfaces, which TCP and the start of a job use. */
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "doctor.h"

static void say_interface(struct doctor *doctor, const char *name)
{
    long long speed, mtu = 0;

    doctor_read_number(doctor, &mtu, "/sys/class/net/%s/mtu", name);
    if (!doctor_read_number(doctor, &speed, "/sys/class/net/%s/speed", name) || speed <= 0)
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s is up, MTU %lld; it does not report its speed", name,
                   mtu);
    else
        doctor_say(doctor, speed < 10000 ? DOCTOR_WARNED : DOCTOR_PASSED,
                   "%s is up at %lld Mbit/s, MTU %lld", name, speed, mtu);
}

static int is_up(const struct doctor *doctor, const char *name)
{
    char state[DOCTOR_NAME];

    return strcmp(name, "lo") != 0 &&
           doctor_read(doctor, state, sizeof state, "/sys/class/net/%s/operstate", name) > 0 &&
           strcmp(state, "up") == 0;
}

void doctor_look_interfaces(struct doctor *doctor)
{
    struct doctor_names names;

    if (!doctor_list_if(doctor, is_up, &names, "/sys/class/net")) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "/sys/class/net cannot be listed");
        return;
    }
    for (size_t i = 0; i < names.n; i++) {
        const char *name = names.name[i];
        /* The sysfs was mounted in another network namespace. */
        if (!doctor_is_test(doctor) && if_nametoindex(name) == 0)
            doctor_say(doctor, DOCTOR_UNKNOWN, "/sys shows %s, which this process does not have",
                       name);
        else
            say_interface(doctor, name);
    }
    doctor_say_cut(doctor, &names, "interfaces that are up");
    if (!names.n)
        doctor_say(doctor, DOCTOR_WARNED, "no interface but loopback is up");
}
