/* SPDX-License-Identifier: Apache-2.0 */
#include "model_dir.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char default_model[] = "qwen3-moe-tiny";

static int has_config(const char *dir)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof(path), "%s/config.json", dir) < (int)sizeof(path) &&
           access(path, R_OK) == 0;
}

/* Try @a base/@a below/<default model>. */
static int try_dir(const char *base, const char *below, char *path, size_t capacity)
{
    return snprintf(path, capacity, "%s%s/%s", base, below, default_model) < (int)capacity &&
           has_config(path);
}

/* A program that is not installed lies in the build directory, libtool's in .libs below it; one
 * whose whole prefix was moved has its data beside it. */
static int try_beside_program(char *path, size_t capacity)
{
    static const char *const places[] = {"/model", "/../model", "/bench/decode/model",
                                         "/../bench/decode/model", "/../share/libstepaf/models"};
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length <= 0)
        return 0;
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash)
        return 0;
    *slash = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (try_dir(program, places[i], path, capacity))
            return 1;
    return 0;
}

int model_dir_find(const char *given, char **dir_p, struct reason *reason)
{
    char path[PATH_MAX];
    int found = 1;
    if (given)
        found = snprintf(path, sizeof(path), "%s", given) < (int)sizeof(path);
    else if (!try_beside_program(path, sizeof(path)) &&
             !try_dir(STEPAF_MODELDIR, "", path, sizeof(path)) &&
             !try_dir(STEPAF_SOURCE_MODELDIR, "", path, sizeof(path)))
        found = 0;
    if (!found)
        return reason_bad_input(
            reason, "%s",
            given ? "--model: path too long"
                  : "the model of stepaf_decode is missing; name one with --model");
    *dir_p = strdup(path);
    return *dir_p ? 0 : reason_no_memory(reason);
}
