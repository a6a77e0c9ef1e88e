#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make ./configure from configure.ac. Needed in a git checkout only; a tarball brings it along.
set -eu
cd "$(dirname "$0")"

for tool in autoreconf:autoconf automake:automake libtoolize:libtool pkg-config:pkg-config; do
    if ! command -v "${tool%%:*}" >/dev/null 2>&1; then
        echo "autogen.sh: ${tool%%:*} is missing: install the package ${tool##*:}" >&2
        exit 1
    fi
done

exec autoreconf --install --warnings=all,no-obsolete
