#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds for aarch64 with a cross compiler and runs tests under qemu-user, on Debian 12 (docs/testing.md, "On aarch64").
# Installs the compiler and qemu. The libraries are Debian's for arm64, in build/aarch64-root: this machine's own packages
# and its list of architectures stay as they are.
#
# usage: scripts/aarch64.sh [libraries|build|test]      each does what stands before it; default: test
#        scripts/aarch64.sh cuda                        compiles the CUDA code for sm_90a in hosts of aarch64, by nvcc; links
#                                                       nothing (scripts/release.sh --aarch64 --cuda does)
#        scripts/aarch64.sh cuda-libraries              libraries, and CUDA's beside them (scripts/fetch_cuda.py)
#        scripts/aarch64.sh serve PROGRAM               asks a program for aarch64 over HTTP, gRPC and OpenAI's API
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-test}
case $mode,$# in
  test,0 | libraries,1 | build,1 | test,1 | cuda,1 | cuda-libraries,1 | serve,2) ;;
  *) echo "usage: scripts/aarch64.sh [libraries|build|test|cuda|cuda-libraries|serve PROGRAM]" >&2; exit 2 ;;
esac
root=$PWD/build/aarch64-root
build=$PWD/build/aarch64
tools=(g++-aarch64-linux-gnu qemu-user)
libraries=(libc6-dev libstdc++-12-dev libboost-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev libspdlog-dev libfmt-dev
  libpcre2-dev libutf8proc-dev libmimalloc-dev zlib1g-dev libxxhash-dev libssl-dev libedit-dev libcurl4-openssl-dev libexpat1-dev
  libzmq3-dev libmsgpack-dev libnghttp2-dev libprotobuf-dev libyaml-dev libgtest-dev libgmock-dev)
tests=(base_test tensor_test ops_test golden_test)
server_tests=(
  tests/protocol/test_http.py::test_live_ready_and_models_ready
  tests/protocol/test_http.py::test_generate_answers_with_one_object
  tests/protocol/test_http.py::test_stream_is_server_sent_events
  tests/protocol/test_http.py::test_metrics_count_what_happened
  tests/protocol/test_http.py::test_sigterm_lets_streams_finish
  tests/protocol/test_openai.py::test_chat_answers
  tests/protocol/test_openai.py::test_events_end_with_done_and_usage_where_it_is_asked_for
  tests/protocol/test_grpc_stream.py::test_streamed_chunks_concatenate_to_the_whole_text)

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

# Unpacks the libraries and what they need, by an apt that knows nothing of this machine's packages.
make_root() {
  local state=$root.apt package stamp
  stamp="$root: ${libraries[*]}"
  if [ "$(cat "$root/done" 2>/dev/null)" = "$stamp" ]; then return 0; fi
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
  mkdir -p "$root/var/lib/dpkg/info"
  echo arm64 >"$root/var/lib/dpkg/arch"
  echo 1 >"$root/var/lib/dpkg/info/format"
  for package in "$state"/archives/*.deb; do
    dpkg-deb --extract "$package" "$root"
    note "$package"
  done
  rm -rf "$state"
  echo "$stamp" >"$root/done"
}

# Dpkg's notes of what is unpacked, with the places where the files are: `dpkg-query --admindir` and dpkg-shlibdeps answer
# for the release by them (scripts/sbom.py, scripts/debian_package.py).
note() { # DEB
  local base=$root/var/lib/dpkg name control kind
  control=$(mktemp -d)
  dpkg-deb --control "$1" "$control"
  sed '1a Status: install ok installed' "$control/control" >>"$base/status"
  echo >>"$base/status"
  name=$(dpkg-deb --field "$1" Package)
  [ "$(dpkg-deb --field "$1" Multi-Arch)" != same ] || name+=:arm64
  dpkg-deb --fsys-tarfile "$1" | tar -tf - | sed -nE "s|^\.(/.*[^/])/?\$|$root\1|p" >"$base/info/$name.list"
  for kind in shlibs symbols; do
    [ ! -e "$control/$kind" ] || cp "$control/$kind" "$base/info/$name.$kind"
  done
  rm -r "$control"
}

emulator=(qemu-aarch64 -L "$root")

build_all() {
  cmake --preset aarch64 | tail -n 1
  cmake --build "$build" --target inflight "${tests[@]}"
}

# Every CUDA source, and the C++ sources of the libraries that have some. Kernels are not optimized: none of them runs.
compile_cuda() {
  local started=$SECONDS folder=$build-cuda toolkit objects=() object
  toolkit=$(dirname "$(dirname "$(realpath "$(command -v nvcc)")")")
  cmake --preset aarch64 -B "$folder" -DINFLIGHT_CUDA=ON -DINFLIGHT_SERVER=OFF -DINFLIGHT_TESTS=OFF \
    -DCMAKE_CUDA_FLAGS=-Ofc=max -DCMAKE_FIND_ROOT_PATH="$root;$toolkit" | tail -n 1
  mapfile -t objects < <(ninja -C "$folder" -t targets all | sed -nE 's/^([^:]*\.cu\.o): .*/\1/p')
  [ ${#objects[@]} -eq "$(git ls-files '*.cu' | wc -l)" ] || { echo "not every CUDA source has an object" >&2; exit 1; }
  cmake --build "$folder" --target "${objects[@]}" inflight_tensor inflight_ops_cuda inflight_decoding_cuda inflight_executor
  for object in "${objects[@]}"; do
    if ! aarch64-linux-gnu-readelf -hW "$folder/$object" | grep -q 'Machine: *AArch64'; then
      echo "$object is not for aarch64" >&2
      exit 1
    fi
  done
  echo "CUDA on aarch64: ${#objects[@]} sources compiled for sm_90a, $((SECONDS - started)) s"
}

# Asks a server over HTTP, gRPC and OpenAI's API, for metrics too, and ends it while it answers; the demo model.
serve() { # PROGRAM
  local folder
  folder=$(dirname "$(emulated_program "$1")")
  [ -x .venv/bin/python ] || scripts/install_deps.sh test
  INFLIGHT_BIN_DIR="$folder" INFLIGHT_TEST_START_TIMEOUT_S=300 .venv/bin/python -m pytest -q "${server_tests[@]}"
}

emulated_program() { # PROGRAM: what the tests in Python start, which the emulator runs
  local folder
  folder=$(dirname "$1")/../emulated
  mkdir -p "$folder"
  printf '#!/bin/sh\nexec %s "%s" "$@"\n' "${emulator[*]}" "$(realpath "$1")" >"$folder/inflight"
  chmod +x "$folder/inflight"
  realpath "$folder/inflight"
}

# What takes minutes under the emulator is left out, the test of a fork that qemu makes otherwise, and those that ask the
# kernel where pages lie, which qemu has no call of.
run_tests() {
  local started=$SECONDS status=0
  emulated() { # TEST FILTER
    "${emulator[@]}" "$build/bin/$1" --gtest_brief=1 --gtest_filter="$2" || status=1
  }
  emulated tensor_test '-NumaMemoryTest.PagesLieOnNodesInTurns:NumaMemoryTest.LargeBuffers*'
  emulated base_test '-ChildProcessTest.AProgramThatCannotBeStartedIsNamed'
  emulated ops_test '-*ASlidingWindow*:*LinearTest.*/*'
  emulated ops_test '*IntegerLinearTest.EveryTable*:*LinearTest.HandChecked*:*LinearTest.ARow*:*LinearTest.LmHead*'
  # A processor without SDOT.
  "${emulator[@]}" -cpu cortex-a53 "$build/bin/ops_test" --gtest_brief=1 --gtest_filter='CpuFeaturesTest.*:FindOpsTest.*' || status=1
  NM=aarch64-linux-gnu-nm find "$build/src/ops/cpu" -name 'isa_*.o' -exec tests/ops/check_isa_objects.sh {} + || status=1
  emulated golden_test 'Models/IntegerGoldenTest.*:Models/GoldenTest.EveryRoadGivesTheSameWeights/*'
  [ -x .venv/bin/python ] || scripts/install_deps.sh test
  .venv/bin/python -m pytest -q tests/scripts/test_glibc_stubs.py -k aarch64 || status=1
  serve "$build/bin/inflight" || status=1
  INFLIGHT_BIN_DIR="$build/emulated" .venv/bin/python -m pytest -q tests/upgrade \
    -k 'engine or checkpoint or journal or conversation' || status=1
  echo "tests on aarch64: status $status, $((SECONDS - started)) s"
  return $status
}

if [ "$mode" = cuda ] && ! command -v nvcc >/dev/null; then
  echo "no nvcc: the CUDA code is not compiled here"
  exit 0
fi
# Who has pip has Debian's or another.
[ "$mode" != cuda-libraries ] || [ -x .venv/bin/python ] || python3 -m pip --version >/dev/null 2>&1 || tools+=(python3-pip)
install_tools
make_root
if [ "$mode" = libraries ]; then exit 0; fi
if [ "$mode" = cuda-libraries ]; then
  python3 scripts/fetch_cuda.py "$root"
  exit
fi
if [ "$mode" = serve ]; then
  serve "$2"
  exit
fi
if [ "$mode" = cuda ]; then
  compile_cuda
  exit
fi
build_all
if [ "$mode" = test ]; then run_tests; fi
