#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Recipes for packages and containers, read as their tools do: what they give to configure it knows, files and stages
# that they name are there, and shell in them parses. ./test/run packages builds what it has the tools for.
set -u
: "${top_srcdir:=.}"
[ -f "$top_srcdir/configure" ] || { echo "skipped: there is no configure"; exit 77; }
# A system's python3-yaml and python3-jinja2 are its own Python's.
python=/usr/bin/python3
[ -x $python ] || python=python3
command -v $python >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
help=$(mktemp) || exit 99
trap 'rm -f "$help"' EXIT
sh "$top_srcdir/configure" --help >"$help" || exit
$python "$top_srcdir/test/lib/recipes_check.py" "$top_srcdir" "$help"
