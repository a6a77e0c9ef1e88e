/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs, their driver, and how NICs access their memory. */
#include <stdio.h>
#include <string.h>

#include "doctor.h"

#define PCI "/sys/bus/pci/devices"

static int is_nvidia(const struct doctor *doctor, const char *gpu)
{
    char vendor[16];

    doctor_read(doctor, vendor, sizeof vendor, PCI "/%s/vendor", gpu);
    return strcmp(vendor, "0x10de") == 0;
}

static int count_nvidia(const struct doctor *doctor)
{
    struct doctor_names gpus;
    int n = 0;

    doctor_gpus(doctor, &gpus);
    for (size_t i = 0; i < gpus.n; i++)
        n += is_nvidia(doctor, gpus.name[i]);
    return n;
}

/* Read a line of /proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX Open Kernel Module for
 * x86_64 570.1 ...". */
static int read_driver(const struct doctor *doctor, char *text, size_t capacity)
{
    return doctor_read_field(doctor, text, capacity, "/proc/driver/nvidia/version", "NVRM version");
}

static void say_gpu(struct doctor *doctor, const char *gpu)
{
    char driver[DOCTOR_NAME];

    if (!doctor_read_link(doctor, driver, sizeof driver, PCI "/%s/driver", gpu)) {
        doctor_say(doctor, DOCTOR_FAILED, "%s has no driver", gpu);
        if (is_nvidia(doctor, gpu))
            doctor_mend(doctor, "modprobe nvidia");
    } else if (!is_nvidia(doctor, gpu)) {
        doctor_say(doctor, DOCTOR_WARNED, "%s (%s): the library supports NVIDIA GPUs only", gpu,
                   driver);
    } else if (strcmp(driver, "nvidia") != 0) {
        doctor_say(doctor, DOCTOR_FAILED, "%s belongs to the driver %s", gpu, driver);
        doctor_mend(doctor, "echo %s >" PCI "/%s/driver/unbind && modprobe nvidia", gpu, gpu);
    } else if (!doctor_exists(doctor, "/dev/nvidiactl")) {
        doctor_say(doctor, DOCTOR_FAILED, "%s: there is no /dev/nvidiactl", gpu);
        doctor_mend(doctor, "nvidia-modprobe -u -c 0   # in a container: --gpus all, from outside");
    } else {
        doctor_say(doctor, DOCTOR_PASSED, "%s, driver nvidia", gpu);
    }
}

void doctor_look_gpu(struct doctor *doctor)
{
    struct doctor_names gpus;
    char text[256];

    doctor_gpus(doctor, &gpus);
    for (size_t i = 0; i < gpus.n; i++)
        say_gpu(doctor, gpus.name[i]);
    doctor_say_cut(doctor, &gpus, "GPUs");
    /* Some containers show a GPU but not its place on the bus. */
    if (!gpus.n && read_driver(doctor, text, sizeof text))
        doctor_say(doctor, DOCTOR_UNKNOWN, "none on the visible bus, but a driver: %.120s", text);
}

static int has_rdma(const struct doctor *doctor)
{
    struct doctor_names devices;

    return doctor_list(doctor, &devices, "/sys/class/infiniband") && devices.n > 0;
}

/* Whether the driver and the kernel share GPU memory through dma-buf; -1: unknown. */
static int has_dmabuf(const struct doctor *doctor, const char **why_p)
{
    char text[256];
    int is_new = doctor_kernel_at_least(doctor, 5, 12);

    *why_p = "open kernel modules, and a kernel that is new enough";
    if (!read_driver(doctor, text, sizeof text)) {
        *why_p = "/proc/driver/nvidia/version cannot be read";
        return -1;
    }
    if (!strstr(text, "Open Kernel Module")) {
        *why_p = "NVIDIA's kernel modules are the closed ones";
        return 0;
    }
    if (is_new < 0)
        *why_p = "the kernel's version cannot be read";
    if (is_new == 0)
        *why_p = "the kernel is older than 5.12";
    return is_new;
}

void doctor_look_dmabuf(struct doctor *doctor)
{
    const char *why;

    if (!count_nvidia(doctor) || !has_rdma(doctor))
        return;
    int has = has_dmabuf(doctor, &why);
    doctor_say(doctor, has < 0 ? DOCTOR_UNKNOWN : has ? DOCTOR_PASSED : DOCTOR_WARNED, "%s", why);
}

void doctor_look_peermem(struct doctor *doctor)
{
    const char *why;

    if (!count_nvidia(doctor) || !has_rdma(doctor))
        return;
    if (doctor_exists(doctor, "/sys/module/nvidia_peermem"))
        doctor_say(doctor, DOCTOR_PASSED, "nvidia_peermem is loaded");
    else if (doctor_exists(doctor, "/sys/module/nv_peer_mem"))
        doctor_say(doctor, DOCTOR_PASSED, "nv_peer_mem is loaded");
    else if (!doctor_exists(doctor, "/sys/module"))
        doctor_say(doctor, DOCTOR_UNKNOWN, "/sys/module cannot be read");
    else if (has_dmabuf(doctor, &why) == 1)
        doctor_say(doctor, DOCTOR_PASSED, "not loaded, and not needed: dma-buf serves");
    else
        doctor_say(doctor, DOCTOR_WARNED, "not loaded, and dma-buf is not known to serve");
}
