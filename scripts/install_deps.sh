#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what Inflight needs on Debian 12 or Ubuntu 24.04 (the package names are the same on both).
#
# usage: scripts/install_deps.sh [demo|gemma3|quick|build|release|test|ci]
#   demo     what scripts/demo.sh needs beside a program that is installed
#   gemma3   also what its --model gemma3 is fetched by
#   quick    what scripts/demo.sh needs where it builds the program: compiler and libraries of the preset quick, and the
#            Python packages of tests/demo.txt, in .venv
#   build    compiler and libraries                                    (default)
#   release  also what scripts/release.sh runs
#   test     also the Python packages of the tests and the demo, in .venv, and Helm for tests/deploy, in build/helm
#   ci       also clang 16, its runtimes, a fast linker, formatters, linters, a cross compiler and emulator of aarch64,
#            the shells that have completion, in
#            .venv-clients the programs that speak OpenAI's API, and in build/prometheus Debian's Prometheus
# Does nothing, in a second, where everything is there. docs/dependencies.md says what each package is for.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-build}

program=(build-essential cmake ninja-build pkg-config ca-certificates
  libnghttp2-dev libprotobuf-dev protobuf-compiler
  libboost-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev libspdlog-dev libfmt-dev
  libpcre2-dev libutf8proc-dev libmimalloc-dev zlib1g-dev libxxhash-dev libssl-dev
  libyaml-dev libedit-dev libcurl4-openssl-dev libexpat1-dev libzmq3-dev libmsgpack-dev)
packages=("${program[@]}" ccache git libgrpc++-dev protobuf-compiler-grpc libgtest-dev libgmock-dev)
case $mode in
  demo) packages=(ca-certificates curl python3) ;;
  gemma3) packages=(ca-certificates curl python3 python3-pip) ;;
  quick) packages=("${program[@]}" curl python3 python3-venv) ;;
  build) ;;
  release) packages+=(python3) ;;
  test | ci) packages+=(python3 python3-numpy python3-venv libpython3-dev curl openssl openmpi-bin) ;;
  *) echo "usage: scripts/install_deps.sh [demo|gemma3|quick|build|release|test|ci]" >&2; exit 2 ;;
esac
[ "$mode" = ci ] && packages+=(
  clang-16 clang-format-16 clang-tidy-16 libclang-rt-16-dev llvm-16 mold codespell chromium fish g++-aarch64-linux-gnu gpg
  gpg-agent mandoc nginx-light qemu-user shellcheck systemd zsh)

as_root=()
[ "$(id -u)" -eq 0 ] || ! command -v sudo >/dev/null || as_root=(sudo)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ] && [ ${#as_root[@]} -eq 0 ]; then
    echo "install_deps.sh: run as root, or install sudo" >&2
    exit 1
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" |
    awk '/^Setting up/ && ++n % 20 == 0 {print "  " n " packages set up"; fflush()}'
fi

# A subset of what tests have, in the same place.
if [ "$mode" = quick ] && [ ! -e .venv/requirements.done ] && ! cmp -s tests/demo.txt .venv/demo.done; then
  echo "installing the Python packages of tests/demo.txt in .venv"
  python3 -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check --no-compile --no-deps -r tests/demo.txt
  cp tests/demo.txt .venv/demo.done
fi

if [ "$mode" = test ] || [ "$mode" = ci ]; then
  stamp=.venv/requirements.done
  if ! cat tests/requirements.txt tests/triton_server.txt | cmp -s - "$stamp"; then
    echo "installing the Python packages of tests/requirements.txt and tests/triton_server.txt in .venv"
    python3 -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
    # Of one machine only; tests/triton skips itself elsewhere.
    [ "$(uname -m)" != x86_64 ] ||
      .venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r tests/triton_server.txt
    cat tests/requirements.txt tests/triton_server.txt >"$stamp"
  fi
  scripts/fetch_helm.py
fi

if [ "$mode" = ci ]; then
  if ! cmp -s tests/clients.txt .venv-clients/clients.done; then
    echo "installing the Python packages of tests/clients.txt in .venv-clients"
    python3 -m venv .venv-clients
    .venv-clients/bin/pip install --quiet --disable-pip-version-check --no-compile --no-deps -r tests/clients.txt
    cp tests/clients.txt .venv-clients/clients.done
  fi
fi

# Unpacked, not installed: the package starts a server on port 9090.
if [ "$mode" = ci ] && [ ! -x build/prometheus/usr/bin/promtool ]; then
  echo "unpacking Debian's Prometheus in build/prometheus"
  rm -rf build/prometheus
  mkdir -p build/prometheus
  (
    cd build/prometheus
    apt-get download -qq prometheus 2>/dev/null ||
      { "${as_root[@]}" apt-get update -qq && apt-get download -qq prometheus; } || true
    dpkg-deb -x prometheus_*.deb . || echo "warning: no Prometheus here; the tests that need it say so"
    rm -f prometheus_*.deb
  )
fi
