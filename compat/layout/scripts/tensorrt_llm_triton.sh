#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One task of a Slurm job (tensorrt_llm_triton.sub): the server on MODEL_REPO, with the flags that are given. Rank 0 listens;
# the others compute their parts of an engine for as many ranks as there are tasks, and wait beside one for one rank.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
server=${TRITONSERVER:-/opt/tritonserver/bin/tritonserver}
[ -x "$server" ] || server=$root/bin/tritonserver
exec "$server" --model-repository="${MODEL_REPO:?MODEL_REPO, the model repository, is not set}" \
  --disable-auto-complete-config --backend-config=python,shm-region-prefix-name="prefix${SLURM_PROCID:-0}_" "$@"
