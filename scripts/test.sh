#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what tests need, builds, runs every test, and ends with `N passed, N failed`.
set -euo pipefail
cd "$(dirname "$0")/.."
started=$SECONDS
scripts/install_deps.sh test
echo "== building (release) =="
cmake --preset release
cmake --build --preset release
echo "== built in $((SECONDS - started)) s; testing =="
python3 scripts/run_tests.py build/release
