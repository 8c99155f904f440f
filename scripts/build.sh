#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds targets of a configured folder. Where sources that compile alone do not compile united (cmake/united.cmake), it
# says so and compiles their targets apart, so that a clash of two names costs CI minutes and not its result.
# usage: scripts/build.sh BUILD_DIR [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
targets=("${@:-all}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if cmake --build "$build" --target "${targets[@]}" -- -k 0 2>&1 | tee "$log"; then exit 0; fi
apart=$(sed -nE 's@^FAILED: .*CMakeFiles/([^/]+)\.dir/Unity/.*@\1@p' "$log" | sort -u | paste -sd ';')
[ -n "$apart" ] || exit 1
echo "warning: names in sources of $apart meet when these are compiled united: rename them; compiling apart"
known=$(sed -n 's/^INFLIGHT_ALSO_APART:STRING=//p' "$build/CMakeCache.txt")
cmake -DINFLIGHT_ALSO_APART="${known:+$known;}$apart" "$build"
cmake --build "$build" --target "${targets[@]}"
