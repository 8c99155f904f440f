#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes what a release consists of, in dist/: tarball, Debian packages, Python wheel, bills of materials, their SHA256SUMS
# (docs/releasing.md). The program links everything but the C library statically, and starts with glibc 2.28 and later.
#
# usage: scripts/release.sh [--cuda] [--aarch64] [--check]
#   --cuda     also builds the program with kernels for NVIDIA GPUs, of all architectures (preset cuda-release-all), and
#              makes its tarball and Debian package; needs nvcc
#   --aarch64  makes all of it for aarch64, in dist-aarch64/ and in place of dist/, by Debian 12's cross compiler
#              (scripts/aarch64.sh); with --cuda, CUDA's libraries for such hosts are fetched (scripts/fetch_cuda.py)
#   --check    afterwards builds the program and the packages a second time, in another folder and without ccache, over the
#              same archives of static_deps.sh, compares, and checks the folder (scripts/check_release.py); with --aarch64,
#              tests ask the tarballs' programs under qemu-user
# Times in the files are SOURCE_DATE_EPOCH, else that of the commit. SHA256SUMS is signed with
#   INFLIGHT_GPG_KEY       a key of gpg: SHA256SUMS.asc
#   INFLIGHT_MINISIGN_KEY  a file of minisign's secret key: SHA256SUMS.minisig
set -euo pipefail
cd "$(dirname "$0")/.."
check=no
cuda=no
preset=cpu-release
cuda_preset='cuda-release-all'
architecture=$(dpkg --print-architecture)
dist=dist
for option in "$@"; do
  case $option in
    --check) check=yes ;;
    --cuda) cuda=yes ;;
    --aarch64) preset=aarch64-release cuda_preset='aarch64-cuda-release-all' architecture=arm64 dist=dist-aarch64 ;;
    *) echo "usage: scripts/release.sh [--cuda] [--aarch64] [--check]" >&2; exit 2 ;;
  esac
done
if [ $preset = aarch64-release ] && [ "$(uname -m)" = aarch64 ]; then
  echo "release.sh: --aarch64 is for another machine; here leave it out" >&2
  exit 2
fi
if [ "$cuda" = yes ] && ! command -v nvcc >/dev/null; then
  echo "release.sh: --cuda needs nvcc, of NVIDIA's CUDA toolkit 12.5 or later, in PATH" >&2
  exit 1
fi
scripts/install_deps.sh release
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) || { echo "no git checkout: set SOURCE_DATE_EPOCH" >&2; exit 1; }
fi
export SOURCE_DATE_EPOCH
[ -z "$(git status --porcelain)" ] || echo "warning: there are changes that are not committed, and they are in these files"
if [ $preset = aarch64-release ]; then
  if [ "$cuda" = yes ]; then scripts/aarch64.sh cuda-libraries; else scripts/aarch64.sh libraries; fi
  scripts/static_deps.sh build/aarch64-root/static-deps cmake/aarch64.cmake
else
  scripts/static_deps.sh
fi
glibc=2.28

make_in() { # BUILD_DIR OUTPUT CMAKE_OPTION...
  local build=$1 output=$2 stage component
  shift 2
  cmake --preset $preset -B "$build" -DINFLIGHT_GLIBC="$glibc" -DCMAKE_INSTALL_LIBDIR="$libraries" "$@" | tail -n 1
  cmake --build "$build" --target inflight libinflight triton_tensorrtllm
  stage=$(mktemp -d)
  for component in program library plugin; do
    cmake --install "$build" --component "$component" --strip --prefix "$stage" >/dev/null
  done
  bill_of "$build" "$stage" libinflight-dev "$(cd "$build" && echo libinflight.so.*.*.*)" "$libraries"
  bill_of "$build" "$stage" inflight-triton-backend backends/tensorrtllm/libtriton_tensorrtllm.so \
    "$libraries/inflight/backends/tensorrtllm"
  rm -rf "$output"
  python3 scripts/packages.py "$stage" --output "$output"
  rm -rf "$stage"
}
bill_of() { # BUILD_DIR STAGE NAME TARGET FOLDER_IN_STAGE
  local folder="$2/share/doc/$3"
  mkdir -p "$folder"
  python3 scripts/sbom.py "$1" --target "$4" --name "$3" --program "$2/$5/$(basename "$4")" --output "$folder/$3.spdx.json"
}
make_cuda_in() { # BUILD_DIR OUTPUT, after make_in
  local build=$1 output=$2 stage
  cmake --preset $cuda_preset -B "$build" -DINFLIGHT_GLIBC="$glibc" | tail -n 1
  cmake --build "$build" --target inflight
  stage=$(mktemp -d)
  cmake --install "$build" --component program --strip --prefix "$stage" >/dev/null
  python3 scripts/packages.py "$stage" --cuda --output "$output"
  rm -rf "$stage"
}
libraries=lib/$(dpkg-architecture -f -a"$architecture" -qDEB_HOST_MULTIARCH 2>/dev/null)
make_in build/$preset $dist
[ "$cuda" = no ] || make_cuda_in build/$cuda_preset $dist

signed=no
if [ -n "${INFLIGHT_GPG_KEY:-}" ]; then
  gpg --batch --yes --local-user "$INFLIGHT_GPG_KEY" --armor --detach-sign $dist/SHA256SUMS
  signed=yes
fi
if [ -n "${INFLIGHT_MINISIGN_KEY:-}" ]; then
  minisign -S -s "$INFLIGHT_MINISIGN_KEY" -m $dist/SHA256SUMS
  signed=yes
fi
[ "$signed" = yes ] || echo "SHA256SUMS is not signed: set INFLIGHT_GPG_KEY or INFLIGHT_MINISIGN_KEY"

if [ "$check" = yes ]; then
  rm -rf build/release-check
  export CCACHE_DISABLE=1
  make_in build/release-check/program build/release-check/dist
  [ "$cuda" = no ] || make_cuda_in build/release-check/cuda build/release-check/dist
  scripts/check_release.py $dist --glibc "$glibc" --same-as build/release-check/dist
  if [ $preset = aarch64-release ]; then
    for tarball in "$dist"/inflight-*.tar.gz; do
      tar -xzf "$tarball" -C build/release-check
      scripts/aarch64.sh serve "build/release-check/$(basename "$tarball" .tar.gz)/bin/inflight"
    done
  fi
fi
