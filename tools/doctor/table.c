/* SPDX-License-Identifier: Apache-2.0 */
/* All checks, in print order. */
#include <string.h>

#include "doctor.h"

/* Those without a function compare ranks: ranks.c says them. */
const struct doctor_check doctor_checks[] = {
    {"memlock", "memory", doctor_look_memlock,
     "Network cards read and write memory that is locked; registering more than the limit fails.",
     "echo '* - memlock unlimited' >>/etc/security/limits.conf   # Slurm: LimitMEMLOCK=infinity of "
     "slurmd, "
     "PropagateResourceLimitsExcept=MEMLOCK; docker: --ulimit memlock=-1"},
    {"memory", "memory", doctor_look_memory,
     "Receive buffers are allocated at the start; a process that goes beyond the limit is killed.",
     "docker run --memory=BYTES ..., resources.limits.memory of a pod, or --mem of sbatch"},
    {"hugepages", "memory", doctor_look_hugepages,
     "Memory of stepaf_alloc is shared memory, and asks for large pages: fewer TLB misses in "
     "copies.",
     "echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled"},
    {"shm", "memory", doctor_look_shm,
     "MPI, NCCL and PyTorch share memory there, and fail, or are ended by SIGBUS, where it is "
     "full. "
     "libstepaf itself needs none.",
     "mount -o remount,size=8G /dev/shm   # docker: --shm-size=8g or --ipc=host"},
    {"balancing", "memory", doctor_look_balancing,
     "The kernel unmaps pages to see who uses them, and moves them: each is a fault in the middle "
     "of a copy.",
     "echo 0 >/proc/sys/kernel/numa_balancing"},

    {"ptrace", "process", doctor_look_ptrace,
     "If ranks of a node may read each other's memory, a tensor in the caller's own memory is "
     "copied once instead of twice.",
     "echo 1 >/proc/sys/kernel/yama/ptrace_scope"},
    {"attach", "process", doctor_look_attach,
     "The same, tried: without it a tensor in the caller's own memory is copied twice (shm;ring).",
     "docker run --cap-add=SYS_PTRACE ...   # or a seccomp profile that allows process_vm_readv"},
    {"namespace", "process", doctor_look_namespace,
     "Ranks of a node that are in different PID namespaces use TCP instead of shared memory.",
     "docker run --pid=host --ipc=host ...   # or all ranks of the node in one container"},
    {"files", "process", doctor_look_files, "Each peer takes up to ten descriptors at the start.",
     "ulimit -n 65536"},
    {"pids", "process", doctor_look_pids,
     "Progress threads, and threads of MPI and CUDA, count: beyond the limit no thread starts.",
     "docker run --pids-limit=-1 ...   # or TasksMax=infinity of the unit"},

    {"settings", "process", doctor_look_settings, "stepaf_init rejects a setting with a bad value.",
     "stepaf_info --settings-help"},

    {"cores", "cores", doctor_look_cores,
     "A rank that waits spins: two on one core take turns, and each waits for the other's.",
     "taskset -c LIST COMMAND   # or --cpus-per-task of sbatch, --bind-to none of mpirun"},
    {"quota", "cores", doctor_look_quota,
     "A group that has used up its quota stands still for the rest of its period, mostly 100 ms; "
     "spinning uses it up.",
     "docker run --cpuset-cpus=LIST ... in place of --cpus; a pod of class Guaranteed with whole "
     "CPUs and the static CPU manager"},
    {"isolated", "cores", doctor_look_isolated,
     "The kernel moves nothing between isolated cores: threads that are not bound pile up on one.",
     "export STEPAF_PROGRESS_CORES=LIST   # and bind each rank: taskset -c CORE COMMAND"},
    {"smt", "cores", doctor_look_smt,
     "A spinning thread takes up to half of its core from its sibling.",
     "echo off >/sys/devices/system/cpu/smt/control   # or bind ranks to one thread of each core"},
    {"governor", "cores", doctor_look_governor,
     "A core that runs slower at rest takes up to milliseconds to reach its full speed.",
     "cpupower frequency-set -g performance"},
    {"idle", "cores", doctor_look_idle,
     "A sleeping rank wakes up later by the exit latency of its core's idle state.",
     "cpupower idle-set -D 20"},
    {"clock", "cores", doctor_look_clock,
     "Deadlines and times of traces are read at every operation; the library uses the bare counter "
     "where the kernel does.",
     "echo tsc >/sys/devices/system/clocksource/clocksource0/current_clocksource"},
    {"load", "cores", doctor_look_load, "Other processes take cores from ranks.",
     "ps -eo pcpu,pid,comm --sort=-pcpu | head"},
    {"jitter", "cores", doctor_look_jitter,
     "All ranks of an operation wait for the time that interrupts, other processes or the host of "
     "a virtual machine take from a spinning core.",
     "isolcpus=LIST nohz_full=LIST irqaffinity=OTHERS on the kernel's command line; "
     "systemctl stop irqbalance"},

    {"interfaces", "net", doctor_look_interfaces,
     "Ranks of different hosts meet over TCP, and send tensors over TCP where there is no RDMA.",
     "ethtool INTERFACE   # another one by STEPAF_NET_IF"},
    {"rdma", "net", doctor_look_rdma, "Tensors between hosts are best sent over RDMA.",
     "docker run --device=/dev/infiniband ..., or the RDMA device plugin of the cluster"},
    {"port", "net", doctor_look_port, "A port that is down carries nothing.",
     "ibstat   # then the cable, and the switch"},
    {"rate", "net", doctor_look_rate,
     "The slowest port decides how long a layer takes where tensors are divided among ports.",
     "mlxlink -d DEVICE   # a link that has lost lanes: the cable, or the port of the switch"},
    {"gid", "net", doctor_look_gid, "Routers forward RoCE v2 over IPv4, and the library uses it.",
     "show_gids   # then STEPAF_VERBS_GID_INDEX"},
    {"mtu", "net", doctor_look_mtu,
     "Larger packets are fewer: with 1024 bytes some cards do not reach their rate.",
     "ip link set INTERFACE mtu 9000"},
    {"pfc", "net", doctor_look_pfc,
     "RoCE is very slow on a network that drops packets; priority flow control prevents drops.",
     "dcb pfc show dev INTERFACE"},
    {"ecn", "net", doctor_look_ecn,
     "Without congestion control many senders to one fill queues, and pauses spread through the "
     "network.",
     "mlnx_qos -i INTERFACE"},
    {"loss", "net", doctor_look_loss,
     "Each lost packet is a retry, which operations of all ranks wait for.",
     "watch -d stepaf_doctor loss   # while a job runs: what grows matters"},

    {"gpu", "gpu", doctor_look_gpu, "A GPU that has no driver or device file cannot be used.",
     "nvidia-smi"},
    {"peermem", "gpu", doctor_look_peermem,
     "One of two ways in which NICs reach GPU memory; without both, tensors go through the host.",
     "modprobe nvidia_peermem"},
    {"dmabuf", "gpu", doctor_look_dmabuf,
     "The other way, which requires NVIDIA's open kernel modules and Linux 5.12.",
     "modinfo -F license nvidia   # Dual MIT/GPL are the open ones: install them"},
    {"distance", "gpu", doctor_look_distance,
     "Traffic between a GPU and a NIC of different NUMA nodes crosses the link between the "
     "processors.",
     "nvidia-smi topo -m   # then STEPAF_NET_DEVICES, or another GPU"},
    {"pcie", "gpu", doctor_look_pcie,
     "A card on fewer or slower lanes than it could have does not reach its rate.", ""},
    {"numa", "gpu", doctor_look_numa, "Polling and copies across NUMA nodes take longer.", ""},
    {"iommu", "gpu", doctor_look_iommu,
     "Translation costs each access of a card, and can keep cards from each other's memory.",
     "iommu=pt on the kernel's command line"},
    {"acs", "gpu", doctor_look_acs,
     "Traffic between a card and a GPU through the root of the bus has a fraction of the rate.",
     ""},

    {"same", "ranks", NULL,
     "Ranks of different versions or settings do not work together, or not as "
     "well.",
     ""},
    {"connect", "ranks", NULL,
     "Ranks meet over TCP and fall back to it: each host must reach every other host.",
     "STEPAF_NET_PORTS=27000-27999 and these ports opened in the firewall of both hosts; "
     "RoCE v2 is UDP port 4791"},
    {NULL, NULL, NULL, NULL, NULL}};

const struct doctor_check *doctor_find(const char *name)
{
    for (const struct doctor_check *check = doctor_checks; check->name; check++)
        if (strcmp(check->name, name) == 0)
            return check;
    return NULL;
}

int doctor_named(const struct doctor_check *check, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(check->name, names[i]) == 0 || strcmp(check->group, names[i]) == 0)
            return 1;
    return n == 0;
}

void doctor_run(struct doctor *doctor, const char *const *names, size_t n)
{
    for (const struct doctor_check *check = doctor_checks; check->name; check++) {
        size_t before = doctor->n;
        if (!check->look || !doctor_named(check, names, n))
            continue;
        doctor->check = check;
        check->look(doctor);
        if (doctor->n == before) {
            doctor_say(doctor, DOCTOR_UNKNOWN, "does not apply: no such device was found");
            doctor_mend(doctor, "%s", "");
        }
    }
}
