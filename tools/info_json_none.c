/* SPDX-License-Identifier: Apache-2.0 */
/* Without jansson in the build there is no JSON output. */
#include <stdio.h>

#include "info.h"

int info_json(const struct info_env *env)
{
    (void)env;
    fputs("stepaf_info: --json requires jansson, which this build lacks\n", stderr);
    return 0;
}
