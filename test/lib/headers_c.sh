#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The public headers compile alone as C.
. "${top_srcdir:-.}/test/lib/headers.sh"
check_headers "${CC:-cc}" c c99 c11 c17
