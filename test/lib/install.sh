#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What "make install" leaves: a modulefile that leaves the system's manual pages to be found, and sets what
# docs/install.md says, and files that all can read, whatever the umask. "make uninstall" takes the project's own
# directories as well.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
if [ -n "${SANITIZERS:-}" ]; then
    echo "skipped: files are installed in the same way without sanitizers"
    exit 77
fi
top_srcdir=$(cd "$top_srcdir" && pwd)
top_builddir=$(cd "$top_builddir" && pwd)
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
log=$directory/log
umask 077
. "$top_srcdir/test/lib/staged.sh"
failed=0

fail()
{
    echo "FAILED: $*"
    failed=1
}

# module_load: what the modulefile sets, as Environment Modules and Lmod do, a variable a line.
module_load()
{
    {
        cat <<'END'
foreach word {module-whatis conflict} { proc $word args {} }
proc setenv {name value} { set ::env($name) $value; lappend ::names $name }
proc joined {name order} {
    if {![info exists ::env($name)]} { set ::env($name) "" }
    set ::env($name) [join [lmap part $order { expr {$part eq "OLD" ? [set ::env($name)] : $part} }] :]
    lappend ::names $name
}
proc prepend-path {name path} {
    if {[info exists ::env($name)]} { joined $name [list $path OLD] } else { joined $name [list $path] }
}
proc append-path {name path} { joined $name [list OLD $path] }
END
        cat "$1"
        echo 'foreach name [lsort -unique $names] { puts "$name=$env($name)" }'
    } >"$directory/module.tcl"
    tclsh "$directory/module.tcl"
}

version=$(sed -n 's/^version=//p' "$top_srcdir/VERSION")
module=$directory/moved/share/libstepaf/modulefiles/libstepaf/$version
for name in $(sed -n 's/^\(setenv\|prepend-path\|append-path\) \([A-Za-z_]*\) .*/\2/p' "$module" | sort -u); do
    sed -n '/brings a modulefile/,/^```/p' "$top_srcdir/docs/install.md" | grep -qw "$name" ||
        fail "docs/install.md does not say that the modulefile sets $name"
done
# A name that begins so is a setting to the library, which warns of what it does not know.
! grep '^[a-z-]* STEPAF_' "$module" || fail "the modulefile sets what the library takes for a setting"
if command -v tclsh >/dev/null; then
    loaded=$(unset MANPATH && module_load "$module") || fail "the modulefile: $loaded"
    case $(echo "$loaded" | sed -n 's/^MANPATH=//p') in
    /*/man:) ;;
    *) fail "the modulefile hides the system's manual pages: $(echo "$loaded" | grep MANPATH)" ;;
    esac
fi

find "$directory/staged" -type f ! -perm -044 >"$log"
[ ! -s "$log" ] || fail "not for all to read: $(wc -l <"$log") files, $(sed "s,^$directory/staged,,; 1q" "$log") first"
make_in uninstall DESTDIR="$directory/staged" || fail "make uninstall: $(tail -n 5 "$log")"
find "$directory/staged" ! -type d -o -path '*stepaf*' ! -path "$directory/staged" >"$log"
[ ! -s "$log" ] || fail "make uninstall leaves $(sed "s,^$directory/staged,," "$log")"

[ $failed -eq 0 ] || exit 1
