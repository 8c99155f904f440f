#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What CI's machines cannot run, on a machine with an NVIDIA GPU and its driver. Ends with the sum `N passed, N failed`.
#   scripts/test_gpu.sh [--bin FOLDER] [suites] [ptx ARCH] [soak] [server] [memcheck] [racecheck]    in this order; default: suites
#   suites     builds for this GPU and runs every test that needs one; none is skipped for want of it
#   ptx ARCH   the same tests with code of compute_ARCH (80, 89) alone, which the driver translates: the kernels of earlier GPUs
#   soak       CudaSoakTest for INFLIGHT_SOAK_SECONDS (600)
#   server     the protocol and demo tests against the whole program (docs/cuda.md, "One file for a GPU host") on the GPU, with
#              the packages of tests/requirements.txt: of .venv where it is there, else of python3; eight files at a time
#   memcheck   the operators' and the sampler's tests under compute-sanitizer
#   racecheck  the same for shared memory, but for the largest of them, test by test, as many at a time as there are cores;
#              INFLIGHT_RACECHECK_SECONDS (600) each, and a test that takes longer is counted as failed and named
# --bin FOLDER: builds nothing (which would take nvcc): the programs are FOLDER's, a build's bin, those of ptx ARCH FOLDER/ptx-ARCH's. `server`
# also reads CMakeCache.txt of their build, which lies beside FOLDER.
# INFLIGHT_TEST_GPU=1 is set: a GPU that is not found is a failure.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export INFLIGHT_TEST_GPU=1
programs=(cuda_ops_test decoding_cuda_test cuda_calls_test cuda_backend_test cuda_golden_test cuda_ranks_test cuda_shared_ranks_test cuda_sleep_test)
others=(builder_test tensor_test cuda_no_kernel_code_test cuda_old_driver_test)
checked=(decoding_cuda_test cuda_ops_test)  # the first has the longest
# Too large for racecheck, which did not end in 350 s for those that were tried: others, of fewer rows or launches, run the same kernels.
large='DrawsWhatTheCpuDrawsFrom|FollowTheFormula|GraphOfManySteps|FindsWhatTheHostFinds$|\.ARowThatRises|OverlappingKernels'
large+='|\.MatchesFloat64|EveryKernelMultiplies|TunedKernelsMultiply|AmongFewRowsAndMany'
built=
passed=0
failed=0
log=$(mktemp)
trap 'rm -rf "$log"' EXIT

# build FOLDER [CMAKE OPTION...]: sets `bin`, where the programs are
build() {
  local folder=$1
  shift
  bin=$folder/bin
  if [ -n "$built" ]; then
    bin=$built
    [ "$folder" = build/cuda ] || bin=$built/${folder#build/cuda-}
    return
  fi
  cmake --preset cuda -B "$folder" -DINFLIGHT_SERVER=OFF "$@" >"$log" 2>&1 &&
    cmake --build "$folder" --target "${programs[@]}" "${others[@]}" >>"$log" 2>&1 && return
  tail -30 "$log"
  failed=$((failed + 1))
  return 1
}

# run PROGRAM [OPTION...]: to its end
run() {
  local count status
  "$bin/$1" --gtest_brief=1 "${@:2}" >"$log" 2>&1
  status=$?
  count=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\?.*/\1/p' "$log" | tail -1)
  passed=$((passed + ${count:-0}))
  count=$(sed -n 's/^ *\([0-9]*\) FAILED TESTS\?$/\1/p' "$log" | tail -1)
  if [ "$status" -ne 0 ]; then
    failed=$((failed + ${count:-1}))
    tail -40 "$log"
  fi
  echo "$bin/$1: status $status, $(grep -E '^\[  (PASSED|SKIPPED) ' "$log" | tr '\n' ' ')"
}

run_all() {  # whatever the ones before said
  local program
  for program in "$@"; do run "$program"; done
  # Ranks on several GPUs add up by NCCL only where they are told to.
  INFLIGHT_CUDA_COLLECTIVES=nccl run cuda_ranks_test '--gtest_filter=CudaRanks*:*/CudaRanks*'
}

soak() {
  export INFLIGHT_SOAK_SECONDS=${INFLIGHT_SOAK_SECONDS:-600}
  run cuda_backend_test '--gtest_filter=CudaSoakTest.*'
}

# python_tests FOLDER PATH...: of the build FOLDER
python_tests() {
  local counts p f
  INFLIGHT_TEST_DEVICE=cuda INFLIGHT_PYTHON_TESTS="${*:2}" INFLIGHT_TEST_FILES_AT_ONCE=8 \
    python3 scripts/run_tests.py "$1" python >"$log" 2>&1
  grep -E '^(FAILED|ERROR) ' "$log"
  counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -1)
  if [ -z "$counts" ]; then
    tail -20 "$log"
    counts="0 passed, 1 failed"
  fi
  read -r p _ f _ <<<"$counts"
  passed=$((passed + p))
  failed=$((failed + f))
  echo "server, ${*:2}: $counts"
}

server() {  # test_gpu.py looks at the GPU's free memory, so no other server runs beside it
  local folder
  folder=$(dirname "$(realpath "${built:-build/cuda-release/bin}")")
  python_tests "$folder" tests/protocol/test_gpu.py
  python_tests "$folder" --ignore=tests/protocol/test_gpu.py tests/protocol tests/demo
}

memcheck() {
  local program
  for program in "${checked[@]}"; do
    if compute-sanitizer --tool memcheck --error-exitcode 7 "$bin/$program" --gtest_brief=1 >"$log" 2>&1; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
    fi
    echo "memcheck, $program: $(grep -E 'ERROR SUMMARY' "$log" | tail -1)"
  done
}

# racecheck_one PROGRAM TEST: prints one line, and the accesses of hazards in our kernels. The library's (nvjet) have CTAs that wait for
# each other in ways that the tool does not see; told to check our kernels alone (--kernel-name), it lets the library's end with an
# illegal address, which they do not without that option. The summary that is printed counts all kernels'. A test that starts no kernel
# passes.
racecheck_one() {
  local out status hazards
  SECONDS=0
  out=$(timeout "${INFLIGHT_RACECHECK_SECONDS:-600}" compute-sanitizer --tool racecheck --print-limit 0 \
    "$1" --gtest_brief=1 --gtest_filter="$2" 2>&1)
  status=$?
  grep -q 'terminated before first instrumented API call' <<<"$out" && grep -q '^\[  PASSED  \]' <<<"$out" && status=0
  hazards=$(grep -E '(Read|Write) access at .*inflight|Internal Sanitizer Error' <<<"$out")
  [ -z "$hazards" ] || [ "$status" -ne 0 ] || status=7
  echo "racecheck, $(basename "$1") $2: status $status, $SECONDS s, $(grep 'RACECHECK SUMMARY' <<<"$out" | tail -1)"
  [ -z "$hazards" ] || head -40 <<<"$hazards"
}
export -f racecheck_one

racecheck() {
  local program
  for program in "${checked[@]}"; do
    "$bin/$program" --gtest_list_tests | awk '/^[^ ]/ {suite = $1} /^ / {print suite $1}' | grep -Ev "$large" | sed "s|^|$bin/$program |"
  done | xargs -P "$(nproc)" -L 1 bash -c 'racecheck_one "$@"' bash | tee "$log"
  passed=$((passed + $(grep -c ': status 0,' "$log")))
  failed=$((failed + $(grep '^racecheck, ' "$log" | grep -vc ': status 0,')))
}

usage() {
  echo "usage: scripts/test_gpu.sh [--bin FOLDER] [suites] [ptx ARCH] [soak] [server] [memcheck] [racecheck]"
  exit 2
}

if [ "${1:-}" = --bin ]; then
  [ $# -ge 2 ] || usage
  built=$(realpath "$2")
  shift 2
fi
[ $# -gt 0 ] || set -- suites
while [ $# -gt 0 ]; do
  case $1 in
    suites) build build/cuda && run_all "${programs[@]}" "${others[@]}" ;;
    ptx)
      [ $# -ge 2 ] || usage
      shift
      build "build/cuda-ptx-$1" "-DCMAKE_CUDA_ARCHITECTURES=$1-virtual" && run_all "${programs[@]}"
      ;;
    soak) build build/cuda && soak ;;
    server) server ;;
    memcheck) build build/cuda && memcheck ;;
    racecheck) build build/cuda && racecheck ;;
    *) usage ;;
  esac
  shift
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
