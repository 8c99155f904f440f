#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# generate_engines.sh MODEL_DIR NUM_RANKS...: an engine of a GPT-2 for each number of ranks, in engines/inflight_N_gpu.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
model=${1:?generate_engines.sh: the directory of a GPT-2 model is needed}
shift
for ranks in "$@"; do
  python3 "$root/tensorrt_llm/examples/gpt/convert_checkpoint.py" --model_dir "$model" --dtype float16 \
    --tp_size "$ranks" --output_dir "checkpoints/$ranks"
  "$root/bin/trtllm-build" --checkpoint_dir "checkpoints/$ranks" --gpt_attention_plugin float16 \
    --remove_input_padding enable --paged_kv_cache enable --gemm_plugin float16 --workers "$ranks" \
    --output_dir "engines/inflight_${ranks}_gpu/"
done
