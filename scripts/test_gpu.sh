#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What CI's machines cannot run, on a machine with an NVIDIA GPU, its driver and nvcc. Ends with the sum `N passed, N failed`.
#   scripts/test_gpu.sh [suites] [ptx ARCH] [memcheck] [racecheck]     in this order; default: suites
#   suites     builds for this GPU and runs every test that needs one; none is skipped for want of it
#   ptx ARCH   the same tests with code of compute_ARCH (80, 89) alone, which the driver translates: the kernels of earlier GPUs
#   memcheck   the operators' and the sampler's tests under compute-sanitizer
#   racecheck  the same for shared memory, test by test, as many at a time as there are cores; INFLIGHT_RACECHECK_SECONDS (600)
#              each, and a test that takes longer is counted as failed and named
# INFLIGHT_TEST_GPU=1 is set: a GPU that is not found is a failure.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export INFLIGHT_TEST_GPU=1
programs=(cuda_ops_test decoding_cuda_test cuda_calls_test cuda_backend_test cuda_golden_test)
others=(builder_test tensor_test cuda_no_kernel_code_test cuda_old_driver_test)
passed=0
failed=0
log=$(mktemp)
trap 'rm -rf "$log"' EXIT

build() {  # build FOLDER [CMAKE OPTION...]
  local folder=$1
  shift
  cmake --preset cuda -B "$folder" -DINFLIGHT_SERVER=OFF "$@" >"$log" 2>&1 &&
    cmake --build "$folder" --target "${programs[@]}" "${others[@]}" >>"$log" 2>&1 && return
  tail -30 "$log"
  failed=$((failed + 1))
  return 1
}

run() {  # run FOLDER PROGRAM...: each to its end, whatever the ones before said
  local folder=$1 program count
  shift
  for program in "$@"; do
    "$folder/bin/$program" --gtest_brief=1 >"$log" 2>&1
    local status=$?
    count=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\?.*/\1/p' "$log" | tail -1)
    passed=$((passed + ${count:-0}))
    count=$(sed -n 's/^ *\([0-9]*\) FAILED TESTS\?$/\1/p' "$log" | tail -1)
    if [ "$status" -ne 0 ]; then
      failed=$((failed + ${count:-1}))
      tail -40 "$log"
    fi
    echo "$folder/$program: status $status, $(grep -E '^\[  (PASSED|SKIPPED) ' "$log" | tr '\n' ' ')"
  done
}

memcheck() {
  local program
  for program in cuda_ops_test decoding_cuda_test; do
    if compute-sanitizer --tool memcheck --error-exitcode 7 "build/cuda/bin/$program" --gtest_brief=1 >"$log" 2>&1; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
    fi
    echo "memcheck, $program: $(grep -E 'ERROR SUMMARY' "$log" | tail -1)"
  done
}

# racecheck_one PROGRAM TEST: prints one line, and what is between our kernels' accesses. Those of cuBLASLt's own kernels (nvjet),
# whose CTAs wait for each other in ways that the tool does not see, do not count, nor does a test that starts no kernel.
racecheck_one() {
  local out status ours
  out=$(timeout "${INFLIGHT_RACECHECK_SECONDS:-600}" compute-sanitizer --tool racecheck --error-exitcode 7 \
    "build/cuda/bin/$1" --gtest_brief=1 --gtest_filter="$2" 2>&1)
  status=$?
  ours=$(grep -E '(Read|Write) access at' <<<"$out" | grep -v ' access at nvjet')
  if [ "$status" -eq 7 ] && [ -z "$ours" ] && grep -q ' access at nvjet' <<<"$out"; then status=0; fi
  grep -q 'terminated before first instrumented API call' <<<"$out" && grep -q '^\[  PASSED  \]' <<<"$out" && status=0
  echo "racecheck, $1 $2: status $status, $(grep 'RACECHECK SUMMARY' <<<"$out" | tail -1)"
  [ -z "$ours" ] || head -40 <<<"$ours"
}
export -f racecheck_one

tests_of() {  # the names of a program's tests
  "build/cuda/bin/$1" --gtest_list_tests | awk '/^[^ ]/ {suite = $1} /^ / {print suite $1}'
}

racecheck() {
  local program
  for program in cuda_ops_test decoding_cuda_test; do
    tests_of "$program" | xargs -P "$(nproc)" -I{} bash -c "racecheck_one $program '{}'" | tee "$log"
    passed=$((passed + $(grep -c ': status 0,' "$log")))
    failed=$((failed + $(grep '^racecheck, ' "$log" | grep -vc ': status 0,')))
  done
}

[ $# -gt 0 ] || set -- suites
while [ $# -gt 0 ]; do
  case $1 in
    suites) build build/cuda && run build/cuda "${programs[@]}" "${others[@]}" ;;
    ptx)
      shift
      build "build/cuda-ptx-$1" "-DCMAKE_CUDA_ARCHITECTURES=$1-virtual" && run "build/cuda-ptx-$1" "${programs[@]}"
      ;;
    memcheck) build build/cuda && memcheck ;;
    racecheck) build build/cuda && racecheck ;;
    *) echo "usage: scripts/test_gpu.sh [suites] [ptx ARCH] [memcheck] [racecheck]" && exit 2 ;;
  esac
  shift
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
