/* SPDX-License-Identifier: Apache-2.0 */
/* A process that no PMIx server has started is told so, in one sentence that holds the words given
 * as arguments. */
#include <stdio.h>
#include <string.h>

#include <stepaf/pmix.h>

int main(int argc, char **argv)
{
    stepaf_context_h ctx = NULL;
    stepaf_status_t status = stepaf_init_pmix(NULL, &ctx);
    const char *text = stepaf_last_error()->text;
    int missing = 0;

    printf("%s: %s\n", stepaf_status_name(status), text);
    for (int i = 1; i < argc; i++) {
        if (strstr(text, argv[i]) != NULL)
            continue;
        printf("it does not say \"%s\"\n", argv[i]);
        missing++;
    }
    return status != STEPAF_ERR_BOOT || ctx != NULL || missing > 0;
}
