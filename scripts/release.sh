#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes what a release consists of, in dist/: tarball, Debian package, Python wheel, bill of materials, their SHA256SUMS
# (docs/releasing.md). The program links everything but the C library statically, and starts with glibc 2.28 and later.
#
# usage: scripts/release.sh [--check]
#   --check  afterwards builds the program and the packages a second time, in another folder and without ccache, over the
#            same archives of static_deps.sh, compares, and checks the folder (scripts/check_release.py)
# Times in the files are SOURCE_DATE_EPOCH, else that of the commit. SHA256SUMS is signed with
#   INFLIGHT_GPG_KEY       a key of gpg: SHA256SUMS.asc
#   INFLIGHT_MINISIGN_KEY  a file of minisign's secret key: SHA256SUMS.minisig
set -euo pipefail
cd "$(dirname "$0")/.."
check=no
case ${1:-} in
  --check) check=yes ;;
  '') ;;
  *) echo "usage: scripts/release.sh [--check]" >&2; exit 2 ;;
esac
scripts/install_deps.sh release
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) || { echo "no git checkout: set SOURCE_DATE_EPOCH" >&2; exit 1; }
fi
export SOURCE_DATE_EPOCH
[ -z "$(git status --porcelain)" ] || echo "warning: there are changes that are not committed, and they are in these files"
scripts/static_deps.sh
glibc=2.28

make_in() { # BUILD_DIR OUTPUT CMAKE_OPTION...
  local build=$1 output=$2 stage
  shift 2
  cmake --preset cpu-release -B "$build" -DINFLIGHT_GLIBC="$glibc" "$@" | tail -n 1
  cmake --build "$build" --target inflight
  stage=$(mktemp -d)
  cmake --install "$build" --component program --strip --prefix "$stage" >/dev/null
  rm -rf "$output"
  python3 scripts/packages.py "$stage" --output "$output"
  cp "$stage/share/doc/inflight/inflight.spdx.json" "$output/"
  (cd "$output" && sha256sum inflight.spdx.json >>SHA256SUMS)
  rm -rf "$stage"
}
make_in build/cpu-release dist

signed=no
if [ -n "${INFLIGHT_GPG_KEY:-}" ]; then
  gpg --batch --yes --local-user "$INFLIGHT_GPG_KEY" --armor --detach-sign dist/SHA256SUMS
  signed=yes
fi
if [ -n "${INFLIGHT_MINISIGN_KEY:-}" ]; then
  minisign -S -s "$INFLIGHT_MINISIGN_KEY" -m dist/SHA256SUMS
  signed=yes
fi
[ "$signed" = yes ] || echo "SHA256SUMS is not signed: set INFLIGHT_GPG_KEY or INFLIGHT_MINISIGN_KEY"

if [ "$check" = yes ]; then
  rm -rf build/release-check
  CCACHE_DISABLE=1 make_in build/release-check/program build/release-check/dist
  scripts/check_release.py dist --glibc "$glibc" --same-as build/release-check/dist
fi
