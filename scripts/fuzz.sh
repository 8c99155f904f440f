#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers and runs each for some seconds from its committed seeds, one on each core at a time.
# usage: scripts/fuzz.sh [SECONDS [PRESET]]; the presets fuzz (optimized, with what they need alone) and asan have them.
# scripts/fuzz_inputs.py runs them for hours and counts.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
preset=${2:-fuzz}
cmake --preset "$preset"
scripts/build.sh "build/$preset" fuzzers

run() {
  local name corpus seeds log
  name=$(basename "$1")
  corpus=build/$preset/corpus/$name
  log=build/$preset/$name.log
  mkdir -p "$corpus"
  local seeds=("tests/fuzz/seeds/${name#fuzz_}")
  [ -d "${seeds[0]}" ] || seeds=()
  if "$1" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=3000 -print_final_stats=1 \
    -artifact_prefix="build/$preset/$name-" "$corpus" "${seeds[@]}" >"$log" 2>&1; then
    echo "$name: $(grep -o 'number_of_executed_units: [0-9]*' "$log" | tail -1)"
  else
    tail -40 "$log"
    return 1
  fi
}

passed=0
failed=0
count() { if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi; }
running=0
for fuzzer in "build/$preset"/bin/fuzz_*; do
  if [ "$running" -ge "$(nproc)" ]; then
    count wait -n
    running=$((running - 1))
  fi
  run "$fuzzer" &
  running=$((running + 1))
done
for ((; running > 0; running--)); do count wait -n; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
