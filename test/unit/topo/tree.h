/* SPDX-License-Identifier: Apache-2.0 */
/* Small trees of files that stand for a machine's "/". */
#ifndef STEPAF_TEST_TREE_H
#define STEPAF_TEST_TREE_H

#include <stddef.h>

/* Make an empty directory for one test; its name goes to @a root. */
void tree_make(char *root, size_t capacity);

/* Write @a text to the file @a path below @a root, with the directories that it needs. */
void tree_write(const char *root, const char *path, const char *text);

/* Remove the directory and all that is in it. */
void tree_remove(const char *root);

#endif
