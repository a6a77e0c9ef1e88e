# SPDX-License-Identifier: Apache-2.0
# STEPAF_JANSSON: jansson, for JSON: stepaf_perf and stepaf_decode need it, and stepaf_info --json.
AC_DEFUN([STEPAF_JANSSON], [
STEPAF_PACKAGE([jansson], [jansson, for the JSON of stepaf_perf and stepaf_decode],
    [jansson], [-ljansson], [libjansson-dev],
    [jansson.h], [[json_decref(json_object());]])
])
