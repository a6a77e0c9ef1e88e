# SPDX-License-Identifier: Apache-2.0
# STEPAF_JANSSON: jansson, which stepaf_perf and stepaf_decode need: JSON.
AC_DEFUN([STEPAF_JANSSON], [
STEPAF_PACKAGE([jansson], [jansson, for the JSON of stepaf_perf and stepaf_decode],
    [jansson], [-ljansson], [libjansson-dev],
    [jansson.h], [[json_decref(json_object());]])
])
