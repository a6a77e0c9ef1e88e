#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The public headers compile alone as C++; those of C++ itself, from C++17 on.
. "${top_srcdir:-.}/test/lib/headers.sh"
if [ -z "${TEST_CXX:-}" ]; then
    echo "skipped: configure has found no C++ compiler"
    exit 77
fi
check_headers "$TEST_CXX" cc c++11 c++14 c++17 || exit
headers_of_cxx=1
check_headers "$TEST_CXX" cc c++17
