#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers and runs each for some seconds from its committed seeds.
# usage: scripts/fuzz.sh [SECONDS [PRESET]]; the presets fuzz (nothing but what they need) and asan have fuzzers.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
preset=${2:-fuzz}
cmake --preset "$preset"
scripts/build.sh "build/$preset" fuzzers
passed=0
failed=0
for fuzzer in build/$preset/bin/fuzz_*; do
  name=$(basename "$fuzzer")
  corpus=build/$preset/corpus/$name
  mkdir -p "$corpus"
  seeds=tests/fuzz/seeds/${name#fuzz_}
  [ -d "$seeds" ] || seeds=
  if "$fuzzer" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=3000 -print_final_stats=1 \
    -artifact_prefix="build/$preset/$name-" "$corpus" $seeds >"build/$preset/$name.log" 2>&1; then
    echo "$name: $(grep -o 'number_of_executed_units: [0-9]*' "build/$preset/$name.log" | tail -1)"
    passed=$((passed + 1))
  else
    tail -40 "build/$preset/$name.log"
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
