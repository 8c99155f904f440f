#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs packages of a release on this very machine, one to throw away, such as a GPU host that reaches no mirror: by
# dpkg, or unpacked. Asks `inflight doctor`, `inflight run` and a server, and uninstalls. Prints the seconds from the
# file to the first answer; fails where the device is not used, an answer is missing or a file is left.
# scripts/try_packages.sh does it for CPUs on bare systems in a folder.
#
# usage: scripts/try_here.sh [--device cuda|cpu] [FILE.deb|FILE.tar.gz...]     default: cuda, inflight-cuda's of dist/
# What a package depends on and this machine does not have is named, and dpkg installs it all the same: cuBLASLt is then
# that of /usr/local/cuda or of NVIDIA's packages for Python. Runs as root.
set -euo pipefail
cd "$(dirname "$0")/.."
device=cuda
if [ "${1:-}" = --device ]; then
  device=${2:-}
  shift $(($# < 2 ? $# : 2))
fi
case $device in cuda | cpu) ;; *) echo "try_here.sh: --device: got '$device', must be cuda or cpu" >&2; exit 2 ;; esac
[ "$(id -u)" -eq 0 ] || { echo "try_here.sh: only root installs packages" >&2; exit 1; }
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
fail() { echo "try_here.sh: $*" >&2; exit 1; }

files() { # all where packages put them, but what dpkg and useradd keep for themselves
  find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /usr/local -o -path /opt -o \
    -path /home -o -path "$PWD" -o -path /var/lib/dpkg -o -path '/etc/*-' -o -path '/var/log/*.log' -o -path /var/cache/ldconfig \
    \) -prune -o -print
  cut -d: -f1 /etc/passwd /etc/group
}
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
missing_of() { # FILE.deb: of what it depends on, each whose alternatives are all absent
  local clause alternatives name found
  dpkg-deb --field "$1" Depends | tr ',' '\n' | while read -r clause; do
    found=no
    IFS='|' read -ra alternatives <<<"$clause"
    for name in "${alternatives[@]}"; do
      read -r name _ <<<"$name"  # without its version
      ! installed "$name" || found=yes
    done
    [ $found = yes ] || echo "  not installed here: $clause"
  done
}
# In a home of its own: the driver keeps what it compiles there.
here() { env HOME="$work" ${libraries:+LD_LIBRARY_PATH="$libraries"} "$@"; }
find_libraries() { # PROGRAM: sets `libraries`, where those are that the linker does not find by itself
  local name folder
  libraries=
  for name in $(ldd "$1" | sed -nE 's/^\s*(\S+) => not found$/\1/p'); do
    folder=$(python3 -c 'import sys; print("\n".join(sys.path))' 2>/dev/null | sed -n 's|$|/nvidia|; /^\//p' |
      while read -r folder; do find "$folder" -maxdepth 3 -name "$name" -printf '%h\n' 2>/dev/null || true; done | sed -n 1p)
    [ -n "$folder" ] || fail "$name, which the program loads, is nowhere on this machine"
    echo "  $name of $folder"
    libraries=${libraries:+$libraries:}$folder
  done
}
ask() { # PROGRAM MODEL: sets `answered`, when the first answer was there
  local port body
  find_libraries "$1"
  here "$1" run "$2" --device "$device" --prompt 'What is 27 + 54?' >"$work/answer" 2>"$work/run.log" ||
    { tail -5 "$work/run.log" >&2; fail "\`inflight run\` failed"; }
  answered=$EPOCHREALTIME
  grep -q '27 + 54 = 81' "$work/answer" || fail "no answer: $(head -c 300 "$work/answer")"
  here "$1" doctor --http-port 0 --grpc-port 0 --metrics-port 0 >"$work/doctor" || true
  sed -nE '/ (system|CPU|GPU) |^faults/s/^/  /p' "$work/doctor"
  [ "$device" = cpu ] || grep -qE '^ok +GPU +NVIDIA' "$work/doctor" || { cat "$work/doctor"; fail "doctor finds no GPU"; }
  rm -f "$work/ports.json"
  here "$1" serve "$2" --device "$device" --http-port 0 --grpc-port 0 --metrics-port 0 --port-file "$work/ports.json" \
    >"$work/server.log" 2>&1 & server=$!
  for _ in $(seq 600); do ! grep -qs '}$' "$work/ports.json" || break; kill -0 $server 2>/dev/null || break; sleep 0.1; done
  port=$(sed -nE 's/.*"http": *([0-9]+).*/\1/p' "$work/ports.json" 2>/dev/null) || true
  [ -n "$port" ] || { tail -20 "$work/server.log" >&2; fail "the server opened no port"; }
  for _ in $(seq 600); do ! deploy/container/health.sh "$port" 2>/dev/null || break; sleep 0.1; done
  body='{"text_input": "What is 27 + 54?", "max_tokens": 20}'
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf 'POST /v2/models/ensemble/generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' \
    ${#body} "$body" >&3
  grep -q '27 + 54 = 81' <&3 || { tail -20 "$work/server.log" >&2; fail "the server does not answer"; }
  exec 3<&-
  sed -nE "s/.*\"(memory planned device=${device}[^ ]*).*/  server: \1/p" "$work/server.log" | sed -n 1p
  grep -q "memory planned device=$device" "$work/server.log" || fail "the server does not use the device $device"
  kill $server
  wait $server || { tail -20 "$work/server.log" >&2; fail "the server did not stop cleanly"; }
  server=
}
try() { # FILE
  local file=$1 name start missing force=() left
  echo "$(basename "$file"), $(stat -c %s "$file") bytes"
  files | sort >"$work/before"
  case $file in
    *.deb)
      name=$(dpkg-deb --field "$file" Package)
      for other in inflight inflight-cuda; do ! installed $other || fail "$other is installed: purge it first"; done
      echo "  depends on: $(dpkg-deb --field "$file" Depends)"
      missing=$(missing_of "$file")
      [ -z "$missing" ] || { force=(--force-depends); echo "$missing"; }
      start=$EPOCHREALTIME
      dpkg "${force[@]}" --install "$file" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log" >&2; fail "dpkg failed"; }
      ask /usr/bin/inflight /usr/share/inflight/demo
      dpkg --purge "$name" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log" >&2; fail "dpkg --purge failed"; }
      ;;
    *.tar.gz)
      name=$work/$(basename "$file" .tar.gz)
      start=$EPOCHREALTIME
      tar -xzf "$file" -C "$work"
      ask "$name/bin/inflight" "$name/share/inflight/demo"
      rm -r "$name"
      ;;
    *) fail "$file: a .deb or .tar.gz is needed" ;;
  esac
  left=$(files | sort | comm -13 "$work/before" -)
  [ -z "$left" ] || fail "$(basename "$file") leaves behind: $left"
  awk -v a="$start" -v b="$answered" 'BEGIN {printf "  %.1f s from the file to the first answer; nothing left behind\n", b - a}'
}

packages=("$@")
[ $# -gt 0 ] || mapfile -t packages < <(ls dist/inflight-cuda_*.deb dist/inflight-cuda-*.tar.gz)
[ ${#packages[@]} -gt 0 ] || fail "dist/ has no package of inflight-cuda: scripts/release.sh --cuda makes them"
echo "$(sed -nE 's/^PRETTY_NAME="(.*)"/\1/p' /etc/os-release), $(nproc) cores"
for package in "${packages[@]}"; do try "$package"; done
