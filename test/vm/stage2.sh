#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The guest's second half, its process 1: make the guest a usable system, run the job's command, and
# stop. The job folder is /vm; the job's variables are in /vm/job.sh, its exit code goes to
# /vm/status. Whatever this prints is in the console's log.
: >/vm/booted
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

# What a system's start would do.
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777,size=75% shm /dev/shm
ln -sfn /proc/self/fd /dev/fd
hostname stepaf-vm
printf '127.0.0.1 localhost stepaf-vm\n' >/etc/hosts
ip link set lo up
ulimit -l unlimited

# shellcheck source=/dev/null
. /vm/job.sh
mkdir -p /lib/modules
ln -sfn "$VM_KERNEL/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
bash "$VM_SOURCES/rails.sh" up >/vm/rails.log 2>&1

# All of the command's writers share a pipe, and only one program writes the file: programs that
# open their standard output anew would else overwrite each other's words.
mkfifo /run/vm-output
cat /run/vm-output >/vm/output &
writer=$!
(cd "$VM_DIRECTORY" && exec setsid -w bash /vm/command) </dev/null >/run/vm-output 2>&1
status=$?
# Something may have been left running with the pipe open.
for _ in {1..20}; do
    kill -0 "$writer" 2>/dev/null || break
    sleep 0.1
done
dmesg >/vm/dmesg.log
echo "$status" >/vm/status.new && mv /vm/status.new /vm/status
sync /vm/status
# The device isa-debug-exit ends the machine at once; were it not there, this would.
printf '\0' | dd of=/dev/port bs=1 seek=244 2>/dev/null
echo o >/proc/sysrq-trigger
sleep 60
