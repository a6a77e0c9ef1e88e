# SPDX-License-Identifier: Apache-2.0
# Sourced before each test: what hwloc, Open MPI and sanitizer builds are to do. SANITIZERS is a list such as
# "address,undefined", empty in plain builds.

# hwloc's plugins look for what no test asks it for, by libraries (X11, OpenCL, ICU) that take most of a rank's start;
# and it unloads them before their leaks are looked at, so that none can be suppressed. Tests that give it machines as
# XML take the one that reads them: unit_with_xml.
TEST_HWLOC_BLACKLIST=hwloc_cuda.so,hwloc_gl.so,hwloc_levelzero.so,hwloc_nvml.so,hwloc_opencl.so,hwloc_pci.so,hwloc_rsmi.so
HWLOC_PLUGINS_BLACKLIST=$TEST_HWLOC_BLACKLIST,hwloc_xml_libxml.so
export TEST_HWLOC_BLACKLIST HWLOC_PLUGINS_BLACKLIST
# It reads the configuration of all PCI devices, at each start of mpirun, say: in a virtual machine milliseconds for each. Where
# no test has a device to find, it need not.
test_devices=
for test_device in /sys/class/infiniband/* /proc/driver/nvidia; do
    [ ! -e "$test_device" ] || test_devices=1
done
[ -n "$test_devices" ] || export HWLOC_COMPONENTS=-linux:pci

# Open MPI's jobs are of one machine, if a test does not say otherwise: by shared memory. To look at all ways that it has, those
# of UCX and libfabric among them, takes a quarter of the processor time of a short job, and half of its time.
OMPI_MCA_pml=${OMPI_MCA_pml-ob1}
OMPI_MCA_btl=${OMPI_MCA_btl-vader,self}
export OMPI_MCA_pml OMPI_MCA_btl

# UCX's way between processes of one machine.
export TEST_UCX_SHM=posix,cma,self

case ${SANITIZERS:-} in
'') ;;
*)
    suppressions=${top_srcdir:-.}/test/lib
    # What is undefined may be a trap: see run. Thread-local memory of libraries that dlopen has loaded is found by its heap
    # blocks: where __tls_get_addr is intercepted, gcc 12 takes a block at 16 bytes of a page for one of glibc 2.19, believes a
    # size that is none, and LeakSanitizer crashes.
    ASAN_OPTIONS=detect_stack_use_after_return=1:handle_sigill=1:intercept_tls_get_addr=0
    LSAN_OPTIONS=suppressions=$suppressions/lsan.supp:print_suppressions=0
    TSAN_OPTIONS=suppressions=$suppressions/tsan.supp:halt_on_error=1
    UBSAN_OPTIONS=print_stacktrace=1
    # UCX comes with Open MPI 5: it leaves a thread behind in a process that forks; and it tries copies between
    # processes by a call of process_vm_readv that is to fail, in which AddressSanitizer of gcc 14 crashes.
    UCX_VFS_ENABLE=n
    UCX_TLS=^cma
    TEST_UCX_SHM=posix,self
    export ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS UCX_VFS_ENABLE UCX_TLS
    ;;
esac
