#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds with a sanitizer preset and runs its tests.
#   asan  AddressSanitizer and UBSan: every test but those marked `arithmetic`, which take minutes over code that others run too
#   tsan  ThreadSanitizer, without gRPC (Debian's is not instrumented): of these what has more than one thread, but the golden
#         tests, whose threads are those of the operator tests
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 suppressions=$PWD/tests/tsan.supp"
export INFLIGHT_SIMULATION_ARRIVALS=100000 INFLIGHT_GOLDEN_MODELS="gpt2_untied llama_gqa4 llama_odd_width"
export PYTEST_ADDOPTS="-m 'not arithmetic'"
targets=(all)
suites=(unit simulation golden python)
if [ "$preset" = tsan ]; then
  targets=(inflight artifact_test base_test bench_load_test builder_test executor_test http_listener_test
    kserve_http_test kserve_messages_test metrics_test ops_test otlp_test sagemaker_test serving_test simulation_test step_allocation_test
    tensor_test tokenizer_test vertex_ai_test)
  suites=(unit simulation python)
  PYTEST_ADDOPTS+=" --ignore=tests/tokenizer --ignore=tests/chat_template"
  # One request at a time, some by the clock: asan runs them. Crowds are in the other tests.
  PYTEST_ADDOPTS+=" --ignore=tests/protocol/recorded --ignore=tests/protocol/test_matrix.py"
fi
cmake --preset "$preset"
cmake --build --preset "$preset" --target "${targets[@]}"
python3 scripts/run_tests.py "build/$preset" "${suites[@]}"
