#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds for aarch64 with a cross compiler, without the server, and runs tests under qemu-user, on Debian 12
# (docs/testing.md, "On aarch64"). Installs the compiler and qemu. The libraries are Debian's for arm64, in
# build/aarch64-root: this machine's own packages and its list of architectures stay as they are.
#
# usage: scripts/aarch64.sh [libraries|build|test]      each does what stands before it; default: test
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-test}
case $mode in
  libraries | build | test) ;;
  *) echo "usage: scripts/aarch64.sh [libraries|build|test]" >&2; exit 2 ;;
esac
root=$PWD/build/aarch64-root
build=$PWD/build/aarch64
tools=(g++-aarch64-linux-gnu qemu-user)
libraries=(libc6-dev libstdc++-12-dev libboost-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev libspdlog-dev libfmt-dev
  libpcre2-dev libutf8proc-dev libmimalloc-dev zlib1g-dev libxxhash-dev libssl-dev libedit-dev libcurl4-openssl-dev libexpat1-dev
  libzmq3-dev libmsgpack-dev libgtest-dev libgmock-dev)
tests=(base_test tensor_test ops_test golden_test)

install_tools() {
  local missing=() package as_root=()
  for package in "${tools[@]}"; do
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "installing: ${missing[*]}"
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

make_root() { # unpacks the libraries and what they need, by an apt that knows nothing of this machine's packages
  local state=$root.apt package
  if [ "$(cat "$root/done" 2>/dev/null)" = "${libraries[*]}" ]; then return 0; fi
  echo "unpacking Debian's libraries for arm64 in ${root#"$PWD"/}"
  rm -rf "$root" "$state"
  mkdir -p "$root" "$state/lists/partial" "$state/archives/partial"
  : >"$state/status"
  foreign_apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= -o Dir::State="$state" \
      -o Dir::State::status="$state/status" -o Dir::Cache="$state" "$@"
  }
  foreign_apt update
  foreign_apt install --download-only --yes --no-install-recommends "${libraries[@]}" >/dev/null
  for package in "$state"/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
  rm -rf "$state"
  echo "${libraries[*]}" >"$root/done"
}

build_all() {
  cmake --preset aarch64 | tail -n 1
  cmake --build "$build" --target inflight "${tests[@]}"
}

# What takes minutes under the emulator is left out, and the test of a fork that qemu makes otherwise.
run_tests() {
  local emulator=(qemu-aarch64 -L "$root") started=$SECONDS status=0
  emulated() { # TEST FILTER
    "${emulator[@]}" "$build/bin/$1" --gtest_brief=1 --gtest_filter="$2" || status=1
  }
  emulated tensor_test '*'
  emulated base_test '-ChildProcessTest.AProgramThatCannotBeStartedIsNamed'
  emulated ops_test '-*ASlidingWindow*:*LinearTest.*/*'
  emulated ops_test '*IntegerLinearTest.EveryTable*:*LinearTest.HandChecked*:*LinearTest.ARow*:*LinearTest.LmHead*'
  # A processor without SDOT.
  "${emulator[@]}" -cpu cortex-a53 "$build/bin/ops_test" --gtest_brief=1 --gtest_filter='CpuFeaturesTest.*:FindOpsTest.*' || status=1
  NM=aarch64-linux-gnu-nm tests/ops/check_isa_objects.sh $(find "$build/src/ops/cpu" -name 'isa_*.o') || status=1
  emulated golden_test 'Models/IntegerGoldenTest.*:Models/GoldenTest.EveryRoadGivesTheSameWeights/*'
  # The tests in Python start a program `inflight` that is run by the emulator.
  mkdir -p "$build/emulated"
  printf '#!/bin/sh\nexec %s "%s" "$@"\n' "${emulator[*]}" "$build/bin/inflight" >"$build/emulated/inflight"
  chmod +x "$build/emulated/inflight"
  INFLIGHT_BIN_DIR="$build/emulated" .venv/bin/python -m pytest -q tests/upgrade \
    -k 'engine or checkpoint or journal or conversation' || status=1
  echo "tests on aarch64: status $status, $((SECONDS - started)) s"
  return $status
}

install_tools
make_root
if [ "$mode" = libraries ]; then exit 0; fi
build_all
if [ "$mode" = test ]; then run_tests; fi
