/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <CUnit/CUnit.h>

void tree_make(char *root, size_t capacity)
{
    const char *base = getenv("TMPDIR");
    snprintf(root, capacity, "%s/stepaf-tree-XXXXXX", base ? base : "/tmp");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(root));
}

void tree_write(const char *root, const char *path, const char *text)
{
    char name[PATH_MAX];
    int n = snprintf(name, sizeof name, "%s/%s", root, path);
    CU_ASSERT_FATAL(n > 0 && (size_t)n < sizeof name);
    for (char *slash = name + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(name, 0700);
        *slash = '/';
    }
    FILE *file = fopen(name, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

void tree_remove(const char *root)
{
    CU_ASSERT_EQUAL(nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}
