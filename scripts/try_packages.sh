#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs each package of dist/ on a bare machine in a folder, asks for a first answer, over HTTP too, and uninstalls it:
# prints the seconds from the file to the answer, and fails where an answer is missing or a file is left behind. With the
# package of the library the example is compiled; the plug-in's is installed over a file of its name, which comes back. On
# Debian 12 the steps of deploy/container/Dockerfile too: servers on a read-only root, of the image, of SageMaker and of cog.
#
# usage: scripts/try_packages.sh [--aarch64] [SUITE [MIRROR]]      default: bookworm, from the mirror of this machine
#   SUITE       of Debian, or noble: Ubuntu 24.04, from Ubuntu's mirror
#   --aarch64   the packages of dist-aarch64/ on a bare machine for arm64, whose programs qemu-user runs
#               (scripts/emulated.sh): the seconds are the emulator's
# Runs as root; needs debootstrap, and 2 GB in build/bare. A suite's bare system is kept there for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=dist
if [ "${1:-}" = --aarch64 ]; then
  [ "$(uname -m)" != aarch64 ] || { echo "try_packages.sh: --aarch64 is for another machine; here leave it out" >&2; exit 2; }
  dist='dist-aarch64'
  shift
fi
suite=${1:-bookworm}
mirror=${2:-}
# What Debian does not have of Ubuntu: its key, and that debootstrap makes its suites all in one way.
of_suite=()
rules=()
if [ "$suite" = noble ]; then
  [ -n "$mirror" ] || mirror=$([ $dist = dist ] && echo http://archive.ubuntu.com/ubuntu || echo http://ports.ubuntu.com/ubuntu-ports)
  keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
  if [ ! -e $keyring ]; then
    keyring=$PWD/build/ubuntu-keyring$keyring
    package=ubuntu-keyring_2023.11.28.1_all.deb
    [ -e "$keyring" ] || (
      mkdir -p build/ubuntu-keyring
      cd build/ubuntu-keyring
      curl -fsSO "$mirror/pool/main/u/ubuntu-keyring/$package"
      echo "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8  $package" | sha256sum --check --quiet
      dpkg-deb --extract $package .
    )
  fi
  of_suite=(--keyring="$keyring" "--components=main,universe")
  [ -e /usr/share/debootstrap/scripts/noble ] || rules=(/usr/share/debootstrap/scripts/gutsy)
fi
[ -n "$mirror" ] || mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null || true; } |
  sed -nE 's@^(URIs:|deb ) *(https?://[^ ]+).*@\2@p' | sed -n 1p)
name=$suite
as_here=(--bind)      # how /dev is mounted inside
when_left=()          # and unmounted
if [ $dist = dist-aarch64 ]; then
  name=$suite-arm64
  as_here=(--rbind)   # in a namespace, what is mounted below goes with it
  when_left=(--lazy)
fi
base=$PWD/build/bare/$name.base
root=$PWD/build/bare/$name
port=18000
mapfile -t proxies < <(env | grep -iE '^(https?_proxy|no_proxy)=')

inside() { chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "${proxies[@]}" bash -ec "$1"; }
fresh() { # the bare system, anew
  unmount
  if mountpoint -q "$root/proc" || mountpoint -q "$root/dev"; then
    echo "$root is still in use: end what runs there" >&2
    exit 1
  fi
  rm -rf --one-file-system "$root"
  cp -a "$base" "$root"
  cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
  mount --bind /proc "$root/proc"
  mount "${as_here[@]}" /dev "$root/dev"
}
files() { # all but what apt, dpkg and useradd keep for themselves
  inside 'find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/lib/apt -o -path /var/cache \
    -o -path /var/log -o -path /var/lib/dpkg -o -path "/etc/*shadow-" -o -name __pycache__ \) -prune -o -print; cut -d: -f1 /etc/passwd /etc/group' | sort
}
# As `docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges` has it: the root can be read alone
# but for /tmp, and the user is 10001. What COMMANDS leave running ends with them, and the mounts too.
read_only() { # COMMANDS, which may use these
  local functions='
    begin() { : >/tmp/answer; "$@" >/tmp/server.log 2>&1 & server=$!; }
    ready() { # PORT [PATH]
      local i
      for ((i = 0; i < 600; i++)); do ! health.sh "$@" 2>/dev/null || return 0; sleep 0.1; done
      cat /tmp/server.log >&2; return 1
    }
    ready_of_cog() { # PORT: as ready, and its model is there; before, the same path answers STARTING
      local i
      ready "$1" /health-check
      for ((i = 0; i < 600; i++)); do
        exec 3<>"/dev/tcp/127.0.0.1/$1"
        printf "GET /health-check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" >&3
        ! grep -q "\"READY\"" <&3 || return 0
        sleep 0.1
      done
      return 1
    }
    post() { # PORT PATH BODY
      exec 3<>"/dev/tcp/127.0.0.1/$1"
      printf "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s" \
        "$2" "${#3}" "$3" >&3
      tee /tmp/answer <&3
    }
    trap "cat /tmp/answer /tmp/server.log >&2" ERR
    end() { kill "$server"; wait "$server"; }
    fails() { if "$@" 2>/dev/null; then echo "$*: no error" >&2; return 1; fi; }'
  mkdir -p "$root.read-only"
  unshare --mount --pid --fork --kill-child bash -ec '
    mount --bind "$0" "$1"
    mount -o remount,bind,ro "$1"
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs tmpfs "$1/tmp"
    exec chroot "$1" env -i HOME=/tmp PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 setpriv --reuid 10001 --regid 10001 \
      --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs bash -eo pipefail -c "$2"' \
    "$root" "$root.read-only" "$functions
$1"
  rmdir "$root.read-only"
}
unmount() { # ends what runs inside, which keeps the mounts
  local at
  for at in /proc/[0-9]*; do
    [ "$(readlink "$at/root" 2>/dev/null)" != "$root" ] || kill -KILL "${at#/proc/}" 2>/dev/null || true
  done
  sleep 0.1
  umount "${when_left[@]}" "$root/proc" "$root/dev" 2>/dev/null || true
}

# What `debootstrap --foreign` leaves for the machine that the system is for is in debootstrap/, until that has done it.
if [ ! -d "$base/usr" ] || { [ -d "$base/debootstrap" ] && [ -z "${TRY_PACKAGES_EMULATED:-}" ]; }; then
  rm -rf "$base"
  mkdir -p "$base"
  foreign=()
  [ $dist = dist ] || foreign=(--foreign --arch=arm64)
  debootstrap "${foreign[@]}" "${of_suite[@]}" --variant=minbase --include=ca-certificates,python3-venv "$suite" "$base" \
    "$mirror" "${rules[@]}" >"$base.log" || { tail -5 "$base.log" >&2; rm -rf "$base"; exit 1; }
  [ $dist = dist-aarch64 ] || chroot "$base" apt-get clean
fi
if [ $dist = dist-aarch64 ] && [ -z "${TRY_PACKAGES_EMULATED:-}" ]; then
  TRY_PACKAGES_EMULATED=yes exec scripts/emulated.sh "$PWD/scripts/try_packages.sh" --aarch64 "$suite" "$mirror"
fi
trap unmount EXIT
if [ -d "$base/debootstrap" ]; then
  DEBOOTSTRAP_DIR=$base/debootstrap debootstrap --second-stage --second-stage-target "$base" >"$base.log" ||
    { tail -5 "$base.log" "$base/debootstrap/debootstrap.log" >&2; exit 1; }
  chroot "$base" apt-get clean
  umount --quiet "$base/proc" "$base/sys" || true
  find "$base/dev" -mindepth 1 -delete  # devices, which no namespace could copy; /dev is this machine's
fi

try() { # NAME FILE INSTALL PROGRAM MODEL UNINSTALL
  local name=$1 file=$2 start answered left
  fresh
  cp "$file" "$root/tmp/"
  files >"$root.before"
  start=$EPOCHREALTIME
  inside "cd /tmp; $3" >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
  inside "$4 run $5 --prompt 'What is 27 + 54?'" >"$root.answer" 2>>"$root.log"
  answered=$EPOCHREALTIME
  grep -q '27 + 54 = 81' "$root.answer" || { echo "$name: no answer" >&2; exit 1; }
  # A server, asked by the shell alone.
  inside "
    $4 serve $5 --http-port $port --grpc-port 0 --metrics-port 0 --port-file /tmp/ports.json >/tmp/server.log 2>&1 & server=\$!
    for _ in \$(seq 600); do [ -e /tmp/ports.json ] && break; sleep 0.1; done
    body='{\"text_input\": \"What is 27 + 54?\", \"max_tokens\": 20}'
    exec 3<>/dev/tcp/127.0.0.1/$port
    printf 'POST /v2/models/ensemble/generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' \
      \${#body} \"\$body\" >&3
    grep -q '27 + 54 = 81' <&3 || { cat /tmp/server.log; exit 1; }
    kill \$server; wait \$server"
  inside "cd /tmp; $6" >>"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
  left=$(files | comm -13 "$root.before" -)
  [ -z "$left" ] || { echo "$name leaves behind: $left" >&2; exit 1; }
  awk -v a="$start" -v b="$answered" -v n="$name" 'BEGIN {printf "%-8s %5.1f s from the file to the first answer; nothing left behind\n", n, b - a}'
}

deb=$(ls $dist/inflight_*.deb)
wheel=$(ls $dist/*.whl)
tarball=$(ls $dist/inflight-[0-9]*.tar.gz)
folder=/opt/$(basename "$tarball" .tar.gz)
echo "$suite: $(chroot "$base" bash -c '. /etc/os-release; echo "$PRETTY_NAME"'), $(nproc) cores"
try deb "$deb" "apt-get install -y -qq --no-install-recommends ./${deb##*/}" inflight /usr/share/inflight/demo \
  'apt-get purge -y -qq inflight'
try wheel "$wheel" "python3 -m venv /opt/venv && /opt/venv/bin/pip install -q --no-index ${wheel##*/}" /opt/venv/bin/inflight \
  /opt/venv/share/inflight/demo '/opt/venv/bin/pip uninstall -q -y inflight; test -z "$(find /opt/venv -type f -name "*inflight*")"; rm -rf /opt/venv'
try tarball "$tarball" "tar xzf ${tarball##*/} -C /opt" "$folder/bin/inflight" "$folder/share/inflight/demo" "rm -r $folder"

fresh
cp $dist/libinflight-dev_*.deb $dist/inflight-triton-backend_*.deb "$root/tmp/"
inside 'apt-get update -qq; apt-get install -y -qq --no-install-recommends g++ pkg-config' >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
files >"$root.before"
inside 'cd /tmp
  apt-get install -y -qq --no-install-recommends ./libinflight-dev_*.deb
  g++ -std=c++20 /usr/share/doc/libinflight-dev/examples/embed/main.cc -o embed $(pkg-config --cflags --libs inflight)' \
  >>"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
mkdir -p "$root/tmp/demo" && cp models/demo/*.json models/demo/*.safetensors "$root/tmp/demo/"
inside '/tmp/embed /tmp/demo "What is 27 + 54?"' | grep -q '27 + 54 = 81' || { echo "library: no answer" >&2; exit 1; }
inside 'apt-get purge -y -qq libinflight-dev
  backends=/opt/tritonserver/backends/tensorrtllm
  mkdir -p $backends && echo of-the-image >$backends/libtriton_tensorrtllm.so
  cd /tmp && apt-get install -y -qq --no-install-recommends ./inflight-triton-backend_*.deb
  ! ldd $backends/libtriton_tensorrtllm.so | grep "not found"
  cmp /opt/tritonserver/backends/inflight/libtriton_inflight.so $backends/libtriton_tensorrtllm.so
  apt-get purge -y -qq inflight-triton-backend
  grep of-the-image $backends/libtriton_tensorrtllm.so
  rm -r /opt/tritonserver' >>"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
left=$(files | comm -13 "$root.before" -)
[ -z "$left" ] || { echo "library and plug-in leave behind: $left" >&2; exit 1; }
echo "library    the example compiles and answers; nothing left behind"
echo "plug-in    its libraries are found; what it replaced is back"

if [ "$suite" = bookworm ]; then
  fresh
  cp "$deb" deploy/container/prepare.sh "$root/tmp/"
  inside '/tmp/prepare.sh /tmp/*.deb; deploy=/usr/share/inflight/deploy
    $deploy/container/prepare_cog.sh
    [ "$(id -u inflight)" = 10001 ]
    ls /app/scripts/launch_triton_server.py
    /opt/tritonserver/bin/tritonserver --help' >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
  mkdir -p "$root/opt/ml/model/only/1"
  cat >"$root/opt/ml/model/only/config.pbtxt" <<END
backend: "conformance"
parameters { key: "kind" value { string_value: "identity" } }
input { name: "INPUT0" data_type: TYPE_INT32 dims: [ 2 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 2 ] }
END
  read_only "
    for folder in / /app /var/tmp; do fails touch \$folder/file; done
    touch /tmp/file
    fails health.sh $port
    begin entrypoint.sh serve /usr/share/inflight/demo --http-port $port --grpc-port 0 --metrics-port 0
    ready $port
    post $port /v2/models/ensemble/generate '{\"text_input\": \"What is 27 + 54?\", \"max_tokens\": 20}' | grep '27 + 54 = 81'
    end" >"$root.log"
  echo "container  steps run; on a read-only root, as the user 10001 without capabilities, it is ready and answers"
  read_only "
    export SAGEMAKER_BIND_TO_PORT=$port
    begin entrypoint.sh serve
    ready $port /ping
    body='{\"inputs\": [{\"name\": \"INPUT0\", \"datatype\": \"INT32\", \"shape\": [2], \"data\": [7, 8]}]}'
    post $port /invocations \"\$body\" | grep '\"data\":\[7,8\]'
    end" >"$root.log"
  echo "SageMaker  \`serve\` is the platform's command where /opt/ml is, and answers /ping and /invocations"
  read_only "
    cd /src
    export PYTHONPATH=/usr/share/inflight/compat/cog ENGINE_DIR=/usr/share/inflight/demo PORT=$port
    begin python -m cog.server.http --http-port=0 --grpc-port=0 --metrics-port=0
    ready_of_cog $port
    post $port /predictions '{\"input\": {\"prompt\": \"What is 27 + 54?\", \"max_tokens\": 20, \"temperature\": 0}}' |
      grep succeeded
    end" >"$root.log"
  echo "cog        the image's project answers a prediction"
fi
