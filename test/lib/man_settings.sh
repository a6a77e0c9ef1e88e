#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The manual page of the settings is what the table of settings says, and no settings.def is left out of
# the table.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
page=$top_srcdir/man/stepaf_settings.7
made=$(mktemp) || exit 99
trap 'rm -f "$made"' EXIT

"$top_builddir/stepaf_info" --man >"$made" || exit 1
if ! diff "$page" "$made"; then
    echo "make it anew: stepaf_info --man >man/stepaf_settings.7"
    exit 1
fi
settings=$(grep -c '^\.B STEPAF_[A-Z_]*$' "$page")
table=$(find "$top_srcdir/src" -name settings.def -exec cat {} + | grep -Ec '^(INT|ENUM|STR)\(')
# The description names one more, STEPAF_ERR_SETTING.
if [ "$settings" -ne $((table + 1)) ]; then
    echo "the page has $((settings - 1)) settings, the table $table"
    exit 1
fi
echo "$table settings"
