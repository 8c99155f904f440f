#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds with a sanitizer preset and runs its tests.
#   asan  AddressSanitizer and UBSan: unit tests and simulations, but for those of arithmetic, whose kernels are not
#         instrumented here (tests of operators, golden models), of ranks, which tsan runs, and of small folders that the
#         server of the Python tests goes through; of the Python tests those of a server that clients talk to. The rest
#         gives the same commands to the same code, or the fuzzers run it. Of the matrix three roads of 24 see every
#         parameter. Guides judge the drafts of n-grams and of a client; the other proposers run in test_speculation.py.
#   tsan  ThreadSanitizer, without the client of gRPC (Debian's is not instrumented): what has more than one thread, and the
#         Python tests with crowds
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 suppressions=$PWD/tests/tsan.supp"
export INFLIGHT_SIMULATION_ARRIVALS=15000 INFLIGHT_SERVER_SIMULATION_ARRIVALS=2000 INFLIGHT_RANK_ARRIVALS=2000
suites=(unit simulation python)
cmake --preset "$preset"
if [ "$preset" = tsan ]; then
  targets=(inflight base_test comm_test executor_test flight_recorder_test grpc_listener_test http_listener_test kserve_http_test otlp_test serving_tests
    ranks_test tensor_test tokenizer_test)
  export INFLIGHT_PYTHON_TESTS="tests/load tests/protocol/test_batches.py tests/protocol/test_beams.py
    tests/protocol/test_concurrency.py tests/protocol/test_grpc_stream.py tests/protocol/test_http.py tests/protocol/test_loading.py
    tests/protocol/test_logging.py tests/protocol/test_mock_llm.py tests/protocol/test_model_control.py tests/protocol/test_queue_policy.py
    tests/protocol/test_repositories.py tests/protocol/test_response_cache.py tests/protocol/test_sequences.py
    tests/protocol/test_stop.py tests/protocol/test_structured_output.py tests/protocol/test_trace.py"
else
  listed=$(ninja -C build/asan -t targets all | sed -nE 's@^bin/([a-z0-9_]+_test): .*@\1@p' |
    grep -vxE 'golden_test|ops_test|ranks_test|bench_(load|tensors)_test|(cog|config|contract|doctor|launch|metrics|page|parameters)_test' |
    grep -vxE '(sagemaker|shadow|vertex_ai)_test|serving_(configuration|statistics|trace)_test')
  mapfile -t targets <<<"$listed"
  targets+=(inflight)
  export GTEST_FILTER="-DistributionTest.AMillionDraws*"
  roads="http-tensorrt_llm_bls-stream-3 or http-tensorrt_llm-whole-1 or grpc-ensemble-stream-1"
  others=$(printf -- ' --ignore=tests/protocol/test_%s.py' bans effects_of_flags file_keys medusa openai_programs orchestrator page \
    rank_engines ranks rate_limiter release_profiles sagemaker server_names threads tritonserver two_models vertex_ai web_pages)
  export INFLIGHT_PYTHON_TESTS="tests/demo tests/load tests/protocol"
  # Half a minute of an automaton that grows to its bound: tests/grammar/test_hostile.py has it, and fuzz_guide_test the
  # code.
  powers="tests/protocol/test_wrong_requests.py::test_a_guide_without_bounds_is_refused[an expression of powers]"
  drafts="not test_guided_speculation or n-grams or drafts_of_a_client"
  export PYTEST_ADDOPTS="-m 'not arithmetic' -k '(not test_matrix or $roads) and ($drafts)' --ignore=tests/protocol/recorded$others '--deselect=$powers'"
fi
started=$SECONDS
scripts/build.sh "build/$preset" "${targets[@]}"
echo "== built in $((SECONDS - started)) s; testing =="
python3 scripts/run_tests.py "build/$preset" "${suites[@]}"
