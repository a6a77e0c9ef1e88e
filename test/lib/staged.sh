# SPDX-License-Identifier: Apache-2.0
# Sourced by tests of an installation: one in DESTDIR, moved to $directory/moved. Expects $directory, $log,
# and $top_builddir as a whole path; sets $lib, and what pkg-config and the loader read.

# make_in TARGET: quietly, without the jobs of the make that runs this.
make_in() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -C "$top_builddir" "$@" >"$log" 2>&1; }

# One at a time: two would move the same libraries away.
install_staged()
(
    flock 9
    make_in install-data install-exec DESTDIR="$directory/staged"
) 9<"$top_builddir/libtool"

install_staged || {
    tail -n 20 "$log"
    exit 1
}
# Where configure has put it.
directory_of() { (cd "$top_builddir" && sed -n "s/^$1 = //p" Makefile); }
prefix=$(directory_of prefix)
libdir=$(directory_of libdir | sed "s,\${exec_prefix},$(directory_of exec_prefix),; s,\${prefix},$prefix,g")
cp -R "$directory/staged$prefix" "$directory/moved"
lib=$directory/moved${libdir#"$prefix"}
export PKG_CONFIG_PATH="$lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
export LD_LIBRARY_PATH="$lib"
# CMake's package finds out by itself where it is; pkg-config is told.
sed -i "s,=$prefix,=$directory/moved," "$lib"/pkgconfig/libstepaf*.pc
