/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>

#include <stepaf/version.h>

#include "info.h"

void info_build(void)
{
    printf("stepaf %s\n", stepaf_version());
    printf("built for %s\n", STEPAF_CONFIGURE_HOST);
    printf("built by %s\n", STEPAF_CONFIGURE_COMPILER);
    printf("\nfound by configure:\n%s", STEPAF_CONFIGURE_SUMMARY);
}
