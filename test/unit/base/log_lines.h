/* SPDX-License-Identifier: Apache-2.0 */
/* What log lines look like. */
#ifndef STEPAF_TEST_LOG_LINES_H
#define STEPAF_TEST_LOG_LINES_H

#include <regex.h>

#define TIME "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{3}Z "

static inline int matches(const char *text, const char *pattern)
{
    regex_t regex;
    if (regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0)
        return 0;
    int result = regexec(&regex, text, 0, NULL, 0);
    regfree(&regex);
    return result == 0;
}

#endif
