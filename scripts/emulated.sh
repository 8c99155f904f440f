#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command where programs for aarch64 start as this machine's own do, in a chroot too: by Debian's
# qemu-user-static, which is unpacked in build/qemu, through the kernel's binfmt_misc. The machine keeps its own list of
# formats: the command is in namespaces of users, mounts and processes, whose root is this one's and which have a list
# of their own (Linux 6.7 or later). On an older kernel qemu-user-static has to be installed, and the machine's own list
# is taken.
#
# usage: scripts/emulated.sh COMMAND...     as root; processes that it leaves running end with it
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: scripts/emulated.sh COMMAND..." >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "emulated.sh: only root can map users and mount" >&2; exit 1; }
qemu=$(realpath "$(dirname "$0")/..")/build/qemu
formats=/proc/sys/fs/binfmt_misc

# The emulator has to be open already (F), since a chroot does not have its file.
! grep -qs '^flags:.*F' $formats/qemu-aarch64 || exec "$@"

if [ ! -e "$qemu/done" ]; then
  echo "unpacking qemu-user-static in build/qemu" >&2
  rm -rf "$qemu"
  mkdir -p "$qemu"
  (
    cd "$qemu"
    apt-get download -qq -o APT::Sandbox::User=root qemu-user-static ||
      { apt-get update -qq && apt-get download -qq -o APT::Sandbox::User=root qemu-user-static; }
    # By this name Debian's emulator knows that it is given the program's first argument, too.
    dpkg-deb --fsys-tarfile qemu-user-static_*.deb | tar -xO ./usr/bin/qemu-aarch64-static >aarch64-binfmt-P
    chmod +x aarch64-binfmt-P
    dpkg-deb --fsys-tarfile qemu-user-static_*.deb | tar -xO ./usr/lib/binfmt.d/qemu-aarch64.conf |
      sed "s|:/[^:]*/aarch64-binfmt-P:|:$qemu/aarch64-binfmt-P:|" >format
    rm qemu-user-static_*.deb
    grep -q "$qemu" format
  )
  touch "$qemu/done"
fi

work=$(mktemp -d)
inner=
trap '[ -z "$inner" ] || kill -KILL "$inner" 2>/dev/null || true; rm -rf "$work"' EXIT
mkfifo "$work/mapped"
# The namespace has all rights once its users are mapped and another program is begun. "container" tells debootstrap
# that no devices can be made.
unshare --user bash -ec 'read -r _ <"$0"; exec env container=lxc unshare --mount --pid --fork --kill-child --mount-proc bash -ec "
  mount -t binfmt_misc binfmt_misc \$0 2>/dev/null ||
    { echo \"emulated.sh: this kernel has no binfmt_misc for a namespace (Linux 6.7): install qemu-user-static\" >&2; exit 1; }
  cat \"\$1\" >\$0/register
  shift
  exec \"\$@\"" "$@"' "$work/mapped" $formats "$qemu/format" "$@" &
inner=$!
until [ "$(readlink /proc/$inner/ns/user)" != "$(readlink /proc/self/ns/user)" ]; do
  kill -0 $inner 2>/dev/null || { echo "emulated.sh: no namespace of users can be made" >&2; exit 1; }
  sleep 0.01
done
echo "0 0 65536" >/proc/$inner/uid_map
echo "0 0 65536" >/proc/$inner/gid_map
echo >"$work/mapped"
status=0
wait $inner || status=$?
inner=
exit $status
