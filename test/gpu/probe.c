/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the library can use a GPU here: exit code 0, or 77 and the reason. */
#include <stdio.h>

#include "device/gpu.h"
#include "transport/transport.h"

int main(void)
{
    char reason[STEPAF_REASON_MAX] = "";

    if (stepaf_gpu_probe(reason))
        return 0;
    printf("SKIP: no GPU: %s\n", reason);
    return 77;
}
