#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the CUDA code for sm_90a with its tests, and runs these. Without a GPU the tests that need one are skipped: what is
# shown then is that everything compiles, links and starts, and what the few others say. With INFLIGHT_TEST_GPU=1 a missing
# GPU is a failure. On a machine without nvcc it says so and counts nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v nvcc >/dev/null; then
  echo "no nvcc: the CUDA code is not compiled here"
  exit 0
fi
./scripts/install_deps.sh test
started=$SECONDS
# Compiled as test.sh did, so that ccache remembers what has nothing to do with CUDA.
preset=united
[ ! -e build/release/build.ninja ] || preset=release
# No kernel runs without a GPU, so that optimizing them would take a third of the minutes for nothing.
fast=()
[ -n "${INFLIGHT_TEST_GPU:-}" ] || fast=(-DCMAKE_CUDA_FLAGS=-Ofc=max)
cmake --preset "$preset" -B build/cuda -DINFLIGHT_CUDA=ON -DINFLIGHT_SERVER=OFF "${fast[@]}"
scripts/build.sh build/cuda cuda_tests inflight
echo "== built in $((SECONDS - started)) s; testing =="
build/cuda/bin/inflight --version
# Of the Python tests those that ask a program with CUDA and need no GPU.
export INFLIGHT_PYTHON_TESTS=tests/tools/test_device.py PYTEST_ADDOPTS="-k driver_that_is_too_old"
python3 scripts/run_tests.py build/cuda unit cuda python
