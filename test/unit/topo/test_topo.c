/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of machines: this one's, captured and made-up ones' as XML or as trees of files. */
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "topo/cpus.h"
#include "topo/sys.h"
#include "topo/topo.h"
#include "tree.h"
#include "unit.h"

/* In the place of the C library's, for hwloc as well. */
static int n_moves;

__attribute__((visibility("default"))) int sched_setaffinity(pid_t pid, size_t bytes,
                                                             const cpu_set_t *cpus)
{
    n_moves++;
    return (int)syscall(SYS_sched_setaffinity, pid, bytes, cpus);
}

static void lists(void)
{
    static const char *const good[] = {"0",   "3",       "0-1,4",     "0-3,8",
                                       "7,9", "0,2,4-6", "8190-8191", "1023-1025"};
    static const char *const bad[] = {
        "",   " ",   "a",     "-1",  "1-",  "1-0",  ",",
        "1,", ",1",  "1,,2",  "1 2", "1;2", "8192", "0-8192",
        "+1", "0x1", "1-2-3", " 1",  "1,a", "1.5",  "99999999999999999999"};
    struct stepaf_cpus cpus;
    char text[64];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CU_ASSERT(stepaf_cpus_parse(good[i], &cpus));
        stepaf_cpus_format(&cpus, text, sizeof text);
        UNIT_STRING(text, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CU_ASSERT_FALSE(stepaf_cpus_parse(bad[i], &cpus));

    CU_ASSERT(stepaf_cpus_parse("4,0-1,1\n", &cpus));
    CU_ASSERT_EQUAL(stepaf_cpus_count(&cpus), 3);
    CU_ASSERT_EQUAL(stepaf_cpus_next(&cpus, 0), 0);
    CU_ASSERT_EQUAL(stepaf_cpus_next(&cpus, 2), 4);
    CU_ASSERT_EQUAL(stepaf_cpus_next(&cpus, 5), -1);
    stepaf_cpus_format(&cpus, text, sizeof text);
    UNIT_STRING(text, "0-1,4");
}

static void long_lists_are_cut(void)
{
    struct stepaf_cpus cpus;
    char text[12];
    memset(&cpus, 0, sizeof cpus);
    stepaf_cpus_format(&cpus, text, sizeof text);
    UNIT_STRING(text, "");
    CU_ASSERT(stepaf_cpus_parse("0,2,4,6,8,10,12", &cpus));
    stepaf_cpus_format(&cpus, text, sizeof text);
    UNIT_STRING(text, "0,2,4,6...");
    CU_ASSERT(stepaf_cpus_parse("0,2,4,6,8", &cpus));
    stepaf_cpus_format(&cpus, text, sizeof text);
    UNIT_STRING(text, "0,2,4,6,8");
}

struct golden {
    const char *file;
    const char *host;
    int cores_usable;
    int cores_machine;
    int numa_nodes;
    size_t l2_bytes;
    size_t l3_bytes;
    const char *binding;
};

static void golden_machines(void)
{
    static const struct golden machines[] = {
        {"two_packages.xml", "two-packages", 32, 32, 2, 1048576, 33554432, "0-31"},
        {"part_allowed.xml", "?", 6, 32, 2, 1048576, 33554432, "4-7,16-17"},
        {"one_core.xml", "small", 1, 1, 1, 524288, 0, "0"},
        {"two_cores_vm.xml", "vm", 2, 2, 1, 2097152, 272629760, "0-1"},
    };
    const char *top = getenv("top_srcdir");
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const struct golden *golden = &machines[i];
        struct stepaf_topo topo;
        char path[4096];
        snprintf(path, sizeof path, "%s/test/unit/topo/%s", top ? top : ".", golden->file);
        CU_ASSERT_EQUAL_FATAL(stepaf_topo_probe(path, &topo), STEPAF_OK);
        UNIT_STRING(topo.host, golden->host);
        CU_ASSERT_NOT_EQUAL(topo.node_id, 0);
        CU_ASSERT_EQUAL(topo.cores_usable, golden->cores_usable);
        CU_ASSERT_EQUAL(topo.cores_machine, golden->cores_machine);
        CU_ASSERT_EQUAL(topo.numa_nodes, golden->numa_nodes);
        CU_ASSERT_EQUAL(topo.l2_bytes, golden->l2_bytes);
        CU_ASSERT_EQUAL(topo.l3_bytes, golden->l3_bytes);
        UNIT_STRING(topo.binding, golden->binding);
    }
}

/* Devices near the cores; all of them where none is near, and none where there are none. A server's
 * own display is no GPU. */
static void devices(void)
{
    static const struct {
        const char *file, *binding, *gpus, *nics;
    } cases[] = {
        {"accelerated.xml", "0", "0000:17:00.0", "mlx5_0"},
        {"accelerated.xml", "1", "0000:b1:00.0", "mlx5_1"},
        {"accelerated.xml", "0-1", "0000:17:00.0,0000:b1:00.0", "mlx5_0,mlx5_1"},
        {"accelerated.xml", "7", "0000:17:00.0,0000:b1:00.0", "mlx5_0,mlx5_1"},
        {"accelerated.xml", "x", "0000:17:00.0,0000:b1:00.0", "mlx5_0,mlx5_1"},
        {"one_core.xml", "0", "", ""},
        {"nonexistent.xml", "0", "", ""},
    };
    const char *top = getenv("top_srcdir");
    char path[4096], gpus[64], nics[64], short_gpus[20], short_nics[20];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(path, sizeof path, "%s/test/unit/topo/%s", top ? top : ".", cases[i].file);
        stepaf_topo_devices(path, cases[i].binding, gpus, nics, sizeof gpus);
        UNIT_STRING(gpus, cases[i].gpus);
        UNIT_STRING(nics, cases[i].nics);
    }
    snprintf(path, sizeof path, "%s/test/unit/topo/accelerated.xml", top ? top : ".");
    stepaf_topo_devices(path, "0-1", short_gpus, short_nics, sizeof short_gpus);
    UNIT_STRING(short_gpus, "0000:17:00.0+");
    UNIT_STRING(short_nics, "mlx5_0,mlx5_1");
}

static void bad_xml(void)
{
    struct stepaf_topo topo;
    char root[256];
    char path[300];
    CU_ASSERT_EQUAL(stepaf_topo_probe("/nonexistent.xml", &topo), STEPAF_ERR_INVALID);
    UNIT_CONTAINS(stepaf_last_error()->text, "/nonexistent.xml");
    tree_make(root, sizeof root);
    tree_write(root, "bad.xml", "<topology><object type=\"Machine\">");
    snprintf(path, sizeof path, "%s/bad.xml", root);
    CU_ASSERT_EQUAL(stepaf_topo_probe(path, &topo), STEPAF_ERR_INVALID);
    tree_remove(root);
}

static void this_machine(void)
{
    struct stepaf_topo topo;
    struct stepaf_topo again;
    struct stepaf_cpus cpus;
    char host[256];
    CU_ASSERT_EQUAL_FATAL(stepaf_topo_probe(NULL, &topo), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_topo_probe(NULL, &again), STEPAF_OK);
    CU_ASSERT_EQUAL(memcmp(&topo, &again, sizeof topo), 0);
    gethostname(host, sizeof host);
    CU_ASSERT_EQUAL(strncmp(topo.host, host, sizeof topo.host - 1), 0);
    CU_ASSERT_NOT_EQUAL(topo.node_id, 0);
    CU_ASSERT(topo.cores_usable >= 1 && topo.cores_usable <= topo.cores_machine);
    CU_ASSERT_EQUAL(topo.cores_machine, (int)sysconf(_SC_NPROCESSORS_ONLN));
    CU_ASSERT(topo.numa_nodes >= 1);
    CU_ASSERT(stepaf_cpus_usable(&cpus));
    CU_ASSERT(topo.cores_usable <= stepaf_cpus_count(&cpus));
}

/* A machine of two nodes and eight units, of which the process has three. */
static void facts_from_files(void)
{
    struct stepaf_cpus usable;
    struct stepaf_topo topo;
    char root[256];
    tree_make(root, sizeof root);
    tree_write(root, "sys/devices/system/cpu/online", "0-7\n");
    tree_write(root, "sys/devices/system/node/online", "0-1\n");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index0/level", "1\n");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index1/level", "2\n");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index1/type", "Unified\n");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index1/size", "1280K\n");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index2/level", "2\n");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index2/type", "Instruction\n");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index2/size", "64K\n");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index3/level", "3\n");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index3/type", "Unified\n");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index3/size", "48M\n");
    CU_ASSERT(stepaf_cpus_parse("4-6", &usable));

    stepaf_sys_probe(root, &usable, &topo);
    CU_ASSERT_EQUAL(topo.cores_machine, 8);
    CU_ASSERT_EQUAL(topo.cores_usable, 3);
    CU_ASSERT_EQUAL(topo.numa_nodes, 2);
    CU_ASSERT_EQUAL(topo.l2_bytes, 1280 << 10);
    CU_ASSERT_EQUAL(topo.l3_bytes, 48 << 20);
    UNIT_STRING(topo.binding, "4-6");

    tree_write(root, "sys/devices/system/cpu/online", "nonsense\n");
    tree_write(root, "sys/devices/system/node/online", "");
    tree_write(root, "sys/devices/system/cpu/cpu4/cache/index3/size", "much\n");
    stepaf_sys_probe(root, &usable, &topo);
    CU_ASSERT(topo.cores_machine >= 1);
    CU_ASSERT_EQUAL(topo.numa_nodes, 1);
    CU_ASSERT_EQUAL(topo.l3_bytes, 0);
    tree_remove(root);
}

/* Nodes are told apart by kernel and PID namespace, and by nothing that changes. */
static void node_ids(void)
{
    struct stepaf_cpus usable = {{1}};
    struct stepaf_topo first;
    struct stepaf_topo second;
    char root[256];
    char link[300];
    tree_make(root, sizeof root);
    tree_write(root, "proc/sys/kernel/random/boot_id", "8d8ae7a1-0000-4000-8000-000000000001\n");
    tree_write(root, "proc/self/ns/uts", "");
    snprintf(link, sizeof link, "%s/proc/self/ns/pid", root);
    CU_ASSERT_EQUAL(symlink("pid:[1]", link), 0);
    stepaf_sys_probe(root, &usable, &first);
    stepaf_sys_probe(root, &usable, &second);
    CU_ASSERT_EQUAL(first.node_id, second.node_id);

    unlink(link);
    CU_ASSERT_EQUAL(symlink("pid:[2]", link), 0);
    stepaf_sys_probe(root, &usable, &second);
    CU_ASSERT_NOT_EQUAL(first.node_id, second.node_id);

    unlink(link);
    CU_ASSERT_EQUAL(symlink("pid:[1]", link), 0);
    tree_write(root, "proc/sys/kernel/random/boot_id", "8d8ae7a1-0000-4000-8000-000000000002\n");
    stepaf_sys_probe(root, &usable, &second);
    CU_ASSERT_NOT_EQUAL(first.node_id, second.node_id);
    tree_remove(root);
}

/* The units near some: those of the largest cache, whatever the order of units; and at least
 * these. */
static void near_units(void)
{
    static const struct {
        const char *own, *near;
    } cases[] = {
        {"0", "0-1,4-5"}, {"4", "0-1,4-5"}, {"0,2", "0-7"}, {"2-3", "2-3,6-7"},
        {"8", "8"},       {"9", "8-9"},     {"8-9", "8-9"}, {"0,10-11", "0-1,4-5,10-11"},
    };
    static const char *const l3[] = {"0-1,4-5\n", "2-3,6-7\n"};
    char root[256], path[128], text[32];

    tree_make(root, sizeof root);
    for (int cpu = 0; cpu < 8; cpu++)
        for (int i = 0; i < 3; i++) {
            static const char *const types[] = {"Data\n", "Instruction\n", "Unified\n"};
            snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/cache/index%d/type", cpu, i);
            tree_write(root, path, types[i]);
            snprintf(path, sizeof path,
                     "sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, i);
            snprintf(text, sizeof text, "%d\n", cpu);
            tree_write(root, path, i == 2 ? l3[cpu / 2 % 2] : text);
        }
    /* One with a list that is none, one whose last index has instructions, and two without
     * caches. */
    tree_write(root, "sys/devices/system/cpu/cpu8/cache/index0/type", "Unified\n");
    tree_write(root, "sys/devices/system/cpu/cpu8/cache/index0/shared_cpu_list", "?\n");
    tree_write(root, "sys/devices/system/cpu/cpu9/cache/index0/type", "Unified\n");
    tree_write(root, "sys/devices/system/cpu/cpu9/cache/index0/shared_cpu_list", "8-9\n");
    tree_write(root, "sys/devices/system/cpu/cpu9/cache/index1/type", "Instruction\n");
    tree_write(root, "sys/devices/system/cpu/cpu9/cache/index1/shared_cpu_list", "0-9\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stepaf_cpus own, near;
        CU_ASSERT_FATAL(stepaf_cpus_parse(cases[i].own, &own));
        stepaf_sys_near(root, &own, &near);
        stepaf_cpus_format(&near, text, sizeof text);
        UNIT_STRING(text, cases[i].near);
    }
    tree_remove(root);
}

static void possible_devices(void)
{
    static const struct {
        const char *class, *vendor;
        bool may;
    } cases[] = {
        {"0x020000\n", "0x15b3\n", false}, /* an Ethernet card */
        {"0x030200\n", "0x10de\n", true},
        {"0x060400\n", "0x8086\n", false},
        {"0x120000\n", "0x1d0f\n", true},
        {"0x030000\n", "0x1234\n", false}, /* a server's own display */
        {"0x030000\n", "0x10de\n", true},
        {"0x038000\n", "0x1002\n", true},
        {"0x068000\n", "0x10de\n", false},
        {"", "0x10de\n", true}, /* it cannot be read */
    };
    char root[256];

    tree_make(root, sizeof root);
    CU_ASSERT(!stepaf_sys_may_have_devices(root)); /* no sysfs at all */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tree_write(root, "sys/bus/pci/devices/0000:00:02.0/class", cases[i].class);
        tree_write(root, "sys/bus/pci/devices/0000:00:02.0/vendor", cases[i].vendor);
        CU_ASSERT_EQUAL(stepaf_sys_may_have_devices(root), cases[i].may);
    }
    tree_write(root, "sys/bus/pci/devices/0000:00:02.0/class", cases[0].class);
    CU_ASSERT(!stepaf_sys_may_have_devices(root));
    tree_write(root, "sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
    CU_ASSERT(stepaf_sys_may_have_devices(root));
    tree_remove(root);
}

/* Not from core to core either, to ask each what it is: ranks that do so end up on the last one
 * together. */
static void looking_moves_no_thread(void)
{
    char gpus[64], nics[64];
    struct stepaf_topo topo;
    FILE *null = fopen("/dev/null", "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(null);
    n_moves = 0;
    CU_ASSERT_EQUAL(stepaf_topo_probe(NULL, &topo), STEPAF_OK);
    stepaf_topo_devices(NULL, "0", gpus, nics, sizeof gpus);
    stepaf_topo_print(null);
    CU_ASSERT_EQUAL(n_moves, 0);
    fclose(null);
}

static void binding(void)
{
    struct stepaf_cpus before;
    struct stepaf_cpus now;
    char list[32];
    CU_ASSERT_FATAL(stepaf_cpus_usable(&before));
    snprintf(list, sizeof list, "%d", stepaf_cpus_next(&before, 0));

    static const char *const bad[] = {"x", "1-", "8191", "-", ","};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CU_ASSERT_EQUAL(stepaf_topo_bind_thread(bad[i]), STEPAF_ERR_SETTING);
        CU_ASSERT_EQUAL(stepaf_topo_check_cores(bad[i]), STEPAF_ERR_SETTING);
        UNIT_CONTAINS(stepaf_last_error()->text, bad[i]);
    }
    CU_ASSERT_EQUAL(stepaf_topo_check_cores(list), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_topo_check_cores(""), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_topo_check_cores(NULL), STEPAF_OK);
    CU_ASSERT(stepaf_cpus_usable(&now));
    CU_ASSERT_EQUAL(memcmp(&now, &before, sizeof now), 0);

    CU_ASSERT_EQUAL(stepaf_topo_bind_thread(list), STEPAF_OK);
    CU_ASSERT(stepaf_cpus_usable(&now));
    CU_ASSERT_EQUAL(stepaf_cpus_count(&now), 1);

    /* Near its own: never less than it was bound to. */
    stepaf_status_t status = stepaf_topo_bind_thread("");
    CU_ASSERT(status == STEPAF_OK || status == STEPAF_ERR_UNSUPPORTED);
    CU_ASSERT(stepaf_cpus_usable(&now));
    CU_ASSERT_EQUAL(stepaf_cpus_next(&now, 0) <= stepaf_cpus_next(&before, 0), 1);
    sched_setaffinity(0, sizeof before.bits, (cpu_set_t *)before.bits);
    CU_ASSERT_EQUAL(stepaf_topo_bind_thread(NULL), status);
    CU_ASSERT(stepaf_cpus_usable(&now));
    CU_ASSERT(stepaf_cpus_count(&now) >= stepaf_cpus_count(&before));
    sched_setaffinity(0, sizeof before.bits, (cpu_set_t *)before.bits);
}

static void printing(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(stream);
    stepaf_topo_print(stream);
    fclose(stream);
    UNIT_CONTAINS(text, "Machine");
    UNIT_CONTAINS(text, "\n");
    UNIT_CONTAINS(text, "PU ");
    free(text);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"lists", lists},
        {"long lists are cut", long_lists_are_cut},
        {"golden machines", golden_machines},
        {"devices", devices},
        {"bad XML", bad_xml},
        {"this machine", this_machine},
        {"facts from files", facts_from_files},
        {"node ids", node_ids},
        {"near units", near_units},
        {"possible devices", possible_devices},
        {"looking moves no thread", looking_moves_no_thread},
        {"binding", binding},
        {"printing", printing},
        CU_TEST_INFO_NULL,
    };
    unit_with_xml();
    return unit_run(tests);
}
