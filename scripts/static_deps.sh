#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the libraries that Debian 12 has no archives of, or none that a shared library can be made of (protobuf), from
# Debian's own sources, for binaries and the plug-in that link everything but the C library and cuBLASLt statically
# (-DINFLIGHT_STATIC=ON, preset cuda-release). Debian's patches are applied.
#
# usage: scripts/static_deps.sh [PREFIX [TOOLCHAIN]]     default: build/static-deps, by this machine's compiler
#   TOOLCHAIN  a file of CMake, cmake/aarch64.cmake: archives for that machine, which go into its folder of libraries
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$(realpath -m "${1:-build/static-deps}")
toolchain=()
if [ $# -gt 1 ]; then
  toolchain=(-DCMAKE_TOOLCHAIN_FILE="$(realpath "$2")")
  export DEB_HOST_ARCH=arm64  # whose flags dpkg-buildflags gives
fi
packages=(fmtlib spdlog simdjson mimalloc protobuf)
! cmp -s scripts/static_deps.sh "$prefix/done" || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/source" "$work/parts" "$prefix/copyright"  # of each, for scripts/packages.py
: >"$prefix/archives.tsv"  # archive, source package, version; scripts/sbom.py reads it
# The same mirrors as the packages come from, asked for their sources.
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
  case $file in
    *.list) [ ! -f "$file" ] || sed -n 's/^deb /deb-src /p' "$file" >>"$work/parts/all.list" ;;
    *.sources) [ ! -f "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/parts/$(basename "$file")" ;;
  esac
done
apt=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/parts" -o "Dir::State::lists=$work/lists"
  -o APT::Get::List-Cleanup=0 -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update
# apt-get compares each file with the signed index; dpkg-source unpacks it and applies Debian's patches.
(cd "$work/source" && apt-get "${apt[@]}" source "${packages[@]}" >"$work/unpack.log")
scripts/check_patched.py "$work"/source/*/

# Hardened as Debian hardens its packages. Paths of assertions do not say where this was built: two runs give equal archives.
export DEB_CFLAGS_STRIP=-g DEB_CXXFLAGS_STRIP=-g
export DEB_CFLAGS_APPEND=-ffile-prefix-map=$work=. DEB_CXXFLAGS_APPEND=-ffile-prefix-map=$work=.
checks=$(dpkg-buildflags --get CPPFLAGS)
# By function, for the linker to leave out what nobody calls.
checks="$checks -ffunction-sections -fdata-sections"
CFLAGS="$(dpkg-buildflags --get CFLAGS) $checks"
CXXFLAGS="$(dpkg-buildflags --get CXXFLAGS) $checks"
export CFLAGS CXXFLAGS
small=(-DCMAKE_CXX_FLAGS_RELEASE="-Os -DNDEBUG")

build() { # NAME OPTION...
  local name=$1
  shift
  cmake -S "$work"/source/"$name"-*/ -B "$work/$name" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_PREFIX_PATH="$prefix" "${toolchain[@]}" "$@" >"$work/$name.log"
  cmake --build "$work/$name" --target install >>"$work/$name.log" || { tail -30 "$work/$name.log" >&2; exit 1; }
  local version
  version=$(dpkg-parsechangelog -l "$work"/source/"$name"-*/debian/changelog -S Version)
  sed -n 's#.*/\([^/]*\.a\)$#\1#p' "$work/$name/install_manifest.txt" |
    awk -v source="$name" -v version="$version" '{print $0 "\t" source "\t" version}' >>"$prefix/archives.tsv"
  cp "$work"/source/"$name"-*/debian/copyright "$prefix/copyright/$name"
  echo "built $name"
}
build fmtlib "${small[@]}" -DFMT_TEST=OFF -DFMT_DOC=OFF
build spdlog "${small[@]}" -DSPDLOG_FMT_EXTERNAL=ON -DSPDLOG_BUILD_EXAMPLE=OFF
build simdjson -DSIMDJSON_DEVELOPER_MODE=OFF
build mimalloc -DMI_BUILD_SHARED=OFF -DMI_BUILD_OBJECT=OFF -DMI_BUILD_TESTS=OFF -DMI_OVERRIDE=ON -DMI_INSTALL_TOPLEVEL=ON
build protobuf "${small[@]}" -Dprotobuf_BUILD_TESTS=OFF -Dprotobuf_BUILD_PROTOC_BINARIES=OFF -Dprotobuf_BUILD_SHARED_LIBS=OFF
cp scripts/static_deps.sh "$prefix/done"  # so that another version of this script builds them anew
