#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what tests need, builds, runs every test, and ends with `N passed, N failed`. Goes on from build/release where
# that is; otherwise builds build/united, the same with fewer and larger units of compilation (cmake/united.cmake).
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
scripts/install_deps.sh test
preset=united
[ ! -e build/release/build.ninja ] || preset=release
echo "== building ($preset) =="
cmake --preset "$preset"
scripts/build.sh "build/$preset"
echo "== built in $((SECONDS - started)) s; testing =="
python3 scripts/run_tests.py "build/$preset"
