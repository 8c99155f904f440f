#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes triton_model_repo, where it is not there, of the four models without BLS, and fills their configurations for one engine.
# REPOSITORY (triton_model_repo), ENGINE_DIR (its tensorrt_llm/1), TOKENIZER_DIR (ENGINE_DIR), MAX_BATCH_SIZE (4) say otherwise.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
templates=$root/all_models/inflight_batcher_llm
repository=${REPOSITORY:-triton_model_repo}
if [ ! -d "$repository" ]; then
  mkdir -p "$repository"
  for model in ensemble preprocessing postprocessing tensorrt_llm; do cp -r "$templates/$model" "$repository/"; done
fi
engine=${ENGINE_DIR:-$(cd "$repository" && pwd)/tensorrt_llm/1}
tokenizer=${TOKENIZER_DIR:-$engine}
batch=triton_max_batch_size:${MAX_BATCH_SIZE:-4}

fill() { # fill MODEL SUBSTITUTIONS: from the template, so that a second run gives the same; names of other releases are left out
  python3 "$root/scripts/triton_fill_template.py" "$templates/$1/config.pbtxt" "$2" >"$repository/$1/config.pbtxt"
}

fill preprocessing "$batch,tokenizer_dir:$tokenizer,preprocessing_instance_count:1"
fill postprocessing "$batch,tokenizer_dir:$tokenizer,postprocessing_instance_count:1"
llm="$batch,decoupled_mode:True,engine_dir:$engine,batching_strategy:inflight_fused_batching"
fill tensorrt_llm "$llm,batch_scheduler_policy:max_utilization,max_queue_delay_microseconds:100"
fill ensemble "$batch"
if [ -d "$repository/tensorrt_llm_bls" ]; then
  fill tensorrt_llm_bls "$batch,decoupled_mode:True,bls_instance_count:1,accumulate_tokens:true"
fi
