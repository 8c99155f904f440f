#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wait_for_server_ready [URL] [SECONDS]: waits until the server says that it is ready; fails when the time is over.
wait_for_server_ready() {
  local url=${1:-localhost:8000} seconds=${2:-120}
  for _ in $(seq "$seconds"); do
    if [ "$(curl --output /dev/null --silent --write-out '%{http_code}' "$url/v2/health/ready")" = 200 ]; then return 0; fi
    sleep 1
  done
  echo "the server at $url was not ready within $seconds seconds" >&2
  return 1
}
