#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `docker run IMAGE WORD...` runs:
#
#   serve, alone, on SageMaker        the platform's command (deploy/sagemaker/serve): it gives no further word, and has its
#                                     folder or its variables there
#   a command or option of inflight   inflight
#   another program                   that program, as the images of Triton do: tritonserver, python3 scripts/..., bash
set -eu
if [ "$*" = serve ] &&
  { [ -d /opt/ml ] || [ -n "${SM_MODEL_DIR:-}${SAGEMAKER_BIND_TO_PORT:-}${SAGEMAKER_MULTI_MODEL:-}" ]; }; then
  exec serve
fi
case ${1:-} in
  '' | -* | serve) exec inflight "$@" ;;
esac
if ! inflight "$1" --help >/dev/null 2>&1 && command -v "$1" >/dev/null; then
  exec "$@"
fi
exec inflight "$@"
