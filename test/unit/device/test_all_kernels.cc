/* SPDX-License-Identifier: Apache-2.0 */
/* All tests of the kernels as one program: what takes time to compile is the same in each, the
 * kernels and their machine. */
#include "kernels_machine/any.h"
#include "kernels_machine/exchange.h"

namespace kernels
{
#include "test_kernels.cc"
}
namespace kernel_streams
{
#include "test_kernel_streams.cc"
}
namespace kernel_any
{
#include "test_kernel_any.cc"
}
namespace kernel_some
{
#include "test_kernel_some.cc"
}
namespace kernel_times
{
#include "test_kernel_times.cc"
}

/* Each begins with all of memory readable. */
static int run(int (*tests)())
{
    readable.clear();
    return tests();
}

int main()
{
    return run(kernels::main) | run(kernel_streams::main) | run(kernel_any::main) |
           run(kernel_some::main) | run(kernel_times::main);
}
