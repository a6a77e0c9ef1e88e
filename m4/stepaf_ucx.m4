# SPDX-License-Identifier: Apache-2.0
# STEPAF_UCX: headers of UCX, optional: transport ucx. The library is looked up at run time.
AC_DEFUN([STEPAF_UCX], [
STEPAF_PACKAGE([ucx], [headers of UCX 1.13 or newer, for transport ucx],
    [ucx], [-lucp -lucs], [libucx-dev],
    [ucp/api/ucp.h], [[int has_1_13@<:@UCP_VERSION(UCP_API_MAJOR, UCP_API_MINOR) >= UCP_VERSION(1, 13) ? 1 : -1@:>@; return has_1_13 == 0;]])
])
