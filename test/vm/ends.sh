#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the guest: start a rank of mpirun's on one end of each rail of $VM_RAILS, such as "r0 r1":
# ends.sh PROGRAM [ARGUMENT...]
#
# Even ranks are on ends a, odd ones on ends b: what an even rank and an odd one have to say to each
# other crosses the links, and two odd ones are on the same device. With VM_FAR, this rank alone is
# on ends b.
end=a
case ${OMPI_COMM_WORLD_RANK:?is not set: this is no mpirun of Open MPI} in
"${VM_FAR:-}") end=b ;;
*[13579]) [ -n "${VM_FAR:-}" ] || end=b ;;
esac
devices=
for rail in ${VM_RAILS:-r0}; do
    devices=$devices${devices:+,}$rail$end
done
export STEPAF_NET_DEVICES="$devices"
# libfabric and UCX choose by variables of their own, and take the first.
export FI_VERBS_IFACE="${devices%%,*}" UCX_NET_DEVICES="${devices%%,*}:1"
exec "$@"
