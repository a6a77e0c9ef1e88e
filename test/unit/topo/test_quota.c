/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of processor time, from control groups of all kinds as files. */
#include "topo/cpus.h"
#include "topo/sys.h"
#include "topo/topo.h"
#include "tree.h"
#include "unit.h"

static void expect_quota(const char *root, int cpus)
{
    int quota = stepaf_sys_cpu_quota(root);
    CU_ASSERT_EQUAL(quota, cpus);
    if (quota != cpus)
        fprintf(stderr, "\n    quota is %d, should be %d\n", quota, cpus);
}

static void quota_of_version_2(void)
{
    char root[256];
    tree_make(root, sizeof root);
    expect_quota(root, 0);
    tree_write(root, "proc/self/cgroup", "0::/user.slice/job\n");
    tree_write(root, "proc/self/mountinfo",
               "22 1 0:20 / /proc rw - proc proc rw\n"
               "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    expect_quota(root, 0);
    tree_write(root, "sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
    expect_quota(root, 0);
    tree_write(root, "sys/fs/cgroup/user.slice/job/cpu.max", "400000 100000\n");
    expect_quota(root, 4);
    tree_write(root, "sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n");
    expect_quota(root, 2);
    tree_write(root, "sys/fs/cgroup/user.slice/job/cpu.max", "1000 100000\n");
    expect_quota(root, 1);
    /* A parent's limit counts if it is smaller. */
    tree_write(root, "sys/fs/cgroup/user.slice/job/cpu.max", "800000 100000\n");
    tree_write(root, "sys/fs/cgroup/user.slice/cpu.max", "300000 100000\n");
    expect_quota(root, 3);
    tree_write(root, "sys/fs/cgroup/user.slice/cpu.max", "900000 100000\n");
    expect_quota(root, 8);
    static const char *const bad[] = {
        "",          "x",         "100000",   "100000 0",
        "-5 100000", "100000 -1", "0 100000", "99999999999999999999 1",
        "1 x"};
    tree_write(root, "sys/fs/cgroup/user.slice/cpu.max", "max\n");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tree_write(root, "sys/fs/cgroup/user.slice/job/cpu.max", bad[i]);
        expect_quota(root, 0);
    }
    tree_remove(root);
}

static void quota_of_version_1(void)
{
    char root[256];
    tree_make(root, sizeof root);
    tree_write(root, "proc/self/cgroup",
               "9:name=systemd:/\n4:cpu,cpuacct:/docker/4711\n2:cpuset:/docker/4711\n0::/\n");
    tree_write(root, "proc/self/mountinfo",
               "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
               "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
               "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
    tree_write(root, "sys/fs/cgroup/cpu,cpuacct/docker/4711/cpu.cfs_quota_us", "-1\n");
    tree_write(root, "sys/fs/cgroup/cpu,cpuacct/docker/4711/cpu.cfs_period_us", "100000\n");
    expect_quota(root, 0);
    tree_write(root, "sys/fs/cgroup/cpu,cpuacct/docker/4711/cpu.cfs_quota_us", "250000\n");
    expect_quota(root, 3);
    tree_write(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
    tree_write(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n");
    expect_quota(root, 2);
    tree_remove(root);
}

/* A container sees its own group as the root of the hierarchy, with or without a namespace. */
static void quota_in_containers(void)
{
    static const char *const groups[] = {"0::/\n", "0::/docker/4711\n", "0::/../elsewhere\n"};
    static const char *const mounts[] = {
        "30 25 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
        "30 25 0:26 /docker/4711 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
        "30 25 0:26 /docker/4711 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
    };
    char root[256];
    tree_make(root, sizeof root);
    tree_write(root, "sys/fs/cgroup/cpu.max", "200000 100000\n");
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        tree_write(root, "proc/self/cgroup", groups[i]);
        tree_write(root, "proc/self/mountinfo", mounts[i]);
        expect_quota(root, 2);
    }
    /* A group of its own inside the container has the smaller limit. */
    tree_write(root, "proc/self/cgroup", "0::/docker/4711/inner\n");
    tree_write(root, "proc/self/mountinfo", mounts[1]);
    tree_write(root, "sys/fs/cgroup/inner/cpu.max", "100000 100000\n");
    expect_quota(root, 1);
    tree_write(root, "proc/self/cgroup", "0::/docker/47110/inner\n");
    expect_quota(root, 2);
    tree_write(root, "proc/self/mountinfo", "30 25 0:26\n\n - \n1 2 3 - cgroup2\nx - cgroup2 y\n");
    expect_quota(root, 0);
    tree_write(root, "proc/self/cgroup", "::\n:\n0\n\n0:\n");
    expect_quota(root, 0);
    tree_remove(root);
}

/* The quota bounds the cores that can be used, whatever the affinity mask says. */
static void quota_bounds_cores(void)
{
    struct stepaf_cpus usable;
    struct stepaf_topo topo;
    char root[256];
    tree_make(root, sizeof root);
    tree_write(root, "proc/self/cgroup", "0::/\n");
    tree_write(root, "proc/self/mountinfo", "30 25 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    tree_write(root, "cg/cpu.max", "150000 100000\n");
    CU_ASSERT(stepaf_cpus_parse("0-5", &usable));
    stepaf_sys_probe(root, &usable, &topo);
    CU_ASSERT_EQUAL(topo.cores_usable, 2);
    tree_write(root, "cg/cpu.max", "990000 100000\n");
    stepaf_sys_probe(root, &usable, &topo);
    CU_ASSERT_EQUAL(topo.cores_usable, 6);
    tree_remove(root);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"quota of version 2", quota_of_version_2},
        {"quota of version 1", quota_of_version_1},
        {"quota in containers", quota_in_containers},
        {"quota bounds cores", quota_bounds_cores},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
