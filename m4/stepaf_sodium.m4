# SPDX-License-Identifier: Apache-2.0
# STEPAF_SODIUM: libsodium, needed: the keyed hash by which TCP connections are proven.
AC_DEFUN([STEPAF_SODIUM], [
STEPAF_PACKAGE([sodium], [libsodium, for the proofs of TCP connections (needed)],
    [libsodium], [-lsodium], [libsodium-dev],
    [sodium.h], [[return sodium_init();]])
STEPAF_PACKAGE_NEEDED([sodium], [libsodium-dev])
])
