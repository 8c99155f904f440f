#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Whether the server of this container is ready. bash alone: the image has no client of HTTP.
# usage: health.sh [PORT [PATH]]     default: 8000 /v2/health/ready; 8080 /ping of SageMaker's front end
set -eu
exec 3<>"/dev/tcp/127.0.0.1/${1:-8000}"
printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "${2:-/v2/health/ready}" >&3
read -r _ status _ <&3
[ "$status" = 200 ]
