#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The flow of the back-end's CI: test.sh MODEL_DIR, with the directory of a GPT-2 and its tokenizer, in a directory for its files.
# For each number of ranks in NUM_GPUS (1): a repository with an invalid type, then V1, in-flight batching, base metrics and
# streaming, each on a server of its own; in the end logs and pages are compared. Ports: HTTP_PORT, GRPC_PORT, METRICS_PORT.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
model=$(cd "${1:?test.sh: the directory of a GPT-2 model is needed}" && pwd) || exit 1
export HTTP_PORT=${HTTP_PORT:-8000} GRPC_PORT=${GRPC_PORT:-8001} METRICS_PORT=${METRICS_PORT:-8002}
timeout=${SERVER_TIMEOUT:-120}
dataset=$here/simple_data.json
tools=$root/tools/inflight_batcher_llm
repository=$PWD/triton_model_repo
export TRITON_SERVER_ESCAPE_LOG_MESSAGES=0 # the records stay the JSON that the check reads

fail() {
  echo "*** FAILED: $*" >&2
  [ -f "${log:-}" ] && tail -n 20 "$log" >&2
  stop_server
  exit 1
}

fill() { # fill MODEL name:value,...
  python3 "$root/tools/fill_template.py" --in_place "$repository/$1/config.pbtxt" "$2" || fail "fill_template.py $1"
}

start_server() { # start_server LOG: launches, and finds the process by its port
  log=$1
  python3 "$root/scripts/launch_triton_server.py" --world_size="$ranks" --model_repo="$repository" --http_port="$HTTP_PORT" \
    --grpc_port="$GRPC_PORT" --metrics_port="$METRICS_PORT" >"$log" 2>&1 || fail "launch_triton_server.py"
  for _ in $(seq 20); do
    server=$(pgrep -f "tritonserver --model-repository=$repository") && return
    sleep 0.1
  done
}

wait_for_server() { # until it is ready, has ended or takes too long; then the log has details
  for _ in $(seq $((timeout * 5))); do
    kill -0 "$server" 2>/dev/null || return 1
    if [ "$(curl -s -o /dev/null -w '%{http_code}' "localhost:$HTTP_PORT/v2/health/ready")" = 200 ]; then
      [ "$(curl -s -o /dev/null -w '%{http_code}' -d '{"log_verbose_level":1}' "localhost:$HTTP_PORT/v2/logging")" = 200 ]
      return
    fi
    sleep 0.2
  done
  return 1
}

stop_server() {
  [ -n "${server:-}" ] || return 0
  kill -SIGINT "$server" 2>/dev/null
  for _ in $(seq 300); do
    kill -0 "$server" 2>/dev/null || { server=; return 0; }
    sleep 0.1
  done
  echo "*** the server did not end" >&2
  return 1
}

scrape() { curl -s "localhost:$METRICS_PORT/metrics" -o "$1" || fail "metrics page"; }

run_tools() {
  python3 "$tools/benchmark_core_model.py" -u "localhost:$HTTP_PORT" --max-input-len=500 dataset --dataset="$dataset" \
    --tokenizer-dir="$model" || fail "benchmark_core_model.py"
  python3 "$tools/end_to_end_test.py" -u "localhost:$HTTP_PORT" --max-input-len=500 --dataset="$dataset" ||
    fail "end_to_end_test.py"
}

rm -rf ./*.log ./*.out engines checkpoints
for ranks in ${NUM_GPUS:-1}; do
  bash "$here/generate_engines.sh" "$model" "$ranks" || fail "generate_engines.sh"
  rm -rf "$repository" && mkdir "$repository"
  cp -r "$root"/all_models/inflight_batcher_llm/* "$repository"
  rm -rf "$repository/tensorrt_llm_bls"
  cp -r "engines/inflight_${ranks}_gpu/" "$repository/tensorrt_llm/1"
  fill ensemble triton_max_batch_size:128
  fill preprocessing "triton_max_batch_size:128,tokenizer_dir:$model,preprocessing_instance_count:1"
  fill postprocessing "triton_max_batch_size:128,tokenizer_dir:$model,postprocessing_instance_count:1"
  engine=$repository/tensorrt_llm/1/inflight_${ranks}_gpu/
  values="triton_max_batch_size:128,decoupled_mode:False,batching_strategy:INVALID,engine_dir:$engine"
  fill tensorrt_llm "$values,max_queue_delay_microseconds:50000,triton_backend:tensorrtllm"
  config=$repository/tensorrt_llm/config.pbtxt

  start_server "${ranks}gpu_invalid_batch_strat.log"
  wait_for_server && fail "a server with an invalid gpt_model_type is ready"
  grep -q "Invalid gpt_model_type" "$log" || fail "the log does not name the invalid gpt_model_type"
  server=

  sed -i 's/"INVALID"/"V1"/' "$config"
  start_server "${ranks}gpu_v1_no_streaming_server.log"
  wait_for_server || fail "the server is not ready"
  run_tools
  scrape "${ranks}gpu_v1_no_stream_metrics.out"
  stop_server || exit 1

  sed -i 's/"V1"/"inflight_fused_batching"/' "$config"
  start_server "${ranks}gpu_IFB_no_streaming_server.log"
  wait_for_server || fail "the server is not ready"
  run_tools
  scrape "${ranks}gpu_IFB_no_stream_metrics.out"
  stop_server || exit 1

  start_server "${ranks}gpu_IFB_no_streaming_base_metrics.log"
  wait_for_server || fail "the server is not ready"
  python3 "$here/base_metrics_verification_tests.py" || fail "base metrics"
  stop_server || exit 1

  sed -i 's/decoupled: False/decoupled: True/' "$config"
  start_server "${ranks}gpu_IFB_streaming_server.log"
  wait_for_server || fail "the server is not ready"
  python3 "$root/inflight_batcher_llm/client/end_to_end_grpc_client.py" -u "localhost:$GRPC_PORT" --prompt="My name is" ||
    fail "end_to_end_grpc_client.py"
  scrape "${ranks}gpu_IFB_stream_metrics.out"
  stop_server || exit 1
done
python3 "$here/custom_metrics_verification_tests.py" || fail "custom metrics"
echo "*** Test Passed"
