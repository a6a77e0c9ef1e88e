# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Sourced by run: start the machine. Expects $cache and $job, and sets $qemu, its process.

# qemu_start ACCELERATOR: "kvm" or "tcg".
qemu_start()
{
    # Emulated, an old processor is faster: all that a new one has besides costs time.
    local accelerator="tcg,thread=multi" cpu=Nehalem
    # What the kernel does beside its work, to harden it or to look after itself, is not what is tested.
    local words="console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nokaslr init_on_alloc=0 hardened_usercopy=off"
    words="$words randomize_kstack_offset=off audit=0 apparmor=0 nowatchdog transparent_hugepage=always"
    if [ "$1" = kvm ]; then
        accelerator=kvm
        cpu=host
    else
        words="$words random.trust_cpu=1 tsc=reliable"
    fi
    # It is not to outlive this script, even if that is killed.
    setpriv --pdeathsig KILL \
        qemu-system-x86_64 -accel "$accelerator" -cpu "$cpu" -smp 2 -m "${VM_MEMORY:-2G}" \
        -machine q35 -display none -nodefaults -no-user-config -no-reboot \
        -kernel "$cache/kernel/image" -initrd "$cache/initramfs" -append "$words" \
        -serial "file:$job/console.log" -device isa-debug-exit,iobase=0xf4,iosize=0x01 \
        -virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap \
        -virtfs "local,path=$job/share,mount_tag=job,security_model=none,multidevs=remap" \
        >"$job/qemu.log" 2>&1 </dev/null 9>&- &
    qemu=$!
}

# qemu_stop: at once, whatever the guest is doing.
qemu_stop()
{
    [ -n "${qemu:-}" ] || return 0
    kill -9 "$qemu" 2>/dev/null
    wait "$qemu" 2>/dev/null
    qemu=
}

# qemu_booted SECONDS: wait until the guest is up; false if it has ended, or is not up in time.
qemu_booted()
{
    local limit=$((SECONDS + $1))
    while [ ! -e "$job/share/booted" ]; do
        kill -0 "$qemu" 2>/dev/null || return
        [ "$SECONDS" -lt "$limit" ] || return
        sleep 0.1
    done
}

# qemu_boot: by KVM where it works, else by emulation. A machine may offer KVM and yet not run a
# guest: that is found out once in the host's uptime.
qemu_boot()
{
    local host
    host=$(cat /proc/sys/kernel/random/boot_id)
    if [ -w /dev/kvm ] && [ "$(cat "$cache/no-kvm" 2>/dev/null)" != "$host" ]; then
        qemu_start kvm
        if qemu_booted 20; then
            return
        fi
        qemu_stop
        echo "$host" >"$cache/no-kvm"
        cat "$job/console.log" "$job/qemu.log" >"$cache/no-kvm.log" 2>/dev/null
    fi
    qemu_start tcg
    qemu_booted 240
}
