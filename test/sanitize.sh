# SPDX-License-Identifier: Apache-2.0
# Sourced before each test: what sanitizer builds are to do. SANITIZERS is a list such as
# "address,undefined", empty in plain builds.

case ${SANITIZERS:-} in
'') ;;
*)
    suppressions=${top_srcdir:-.}/test/lib
    ASAN_OPTIONS=detect_stack_use_after_return=1
    LSAN_OPTIONS=suppressions=$suppressions/lsan.supp:print_suppressions=0
    TSAN_OPTIONS=suppressions=$suppressions/tsan.supp:halt_on_error=1
    UBSAN_OPTIONS=print_stacktrace=1
    # hwloc unloads its plugins before their leaks are looked at, so that none can be suppressed. The plugin
    # that reads XML does not leak, and tests need it.
    HWLOC_PLUGINS_BLACKLIST=hwloc_cuda.so,hwloc_gl.so,hwloc_levelzero.so,hwloc_nvml.so,hwloc_opencl.so,hwloc_pci.so,hwloc_rsmi.so
    export ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS HWLOC_PLUGINS_BLACKLIST
    ;;
esac
