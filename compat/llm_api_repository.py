# SPDX-License-Identifier: Apache-2.0
"""all_models/llmapi of the releases from 0.19 on: one model, whose 1/model.yaml names the directory that is served.

The tables say what all_models/llmapi/tensorrt_llm/config.pbtxt declares: at v0.19.0 of
triton-inference-server/tensorrtllm_backend, and at 1.x of NVIDIA/TensorRT-LLM below triton_backend/.
"""

import pathlib

from release_repositories import ALWAYS, io_text

FIRST, ONE = 19, 30  # 0.19, and what release_repositories calls 1.0
INPUTS = [
    ("text_input", "STRING", "-1", FIRST, ALWAYS, "r"),
    ("streaming", "BOOL", "1", FIRST, ALWAYS, ""),
    ("sampling_param_beam_width", "INT32", "1", FIRST, ONE - 1, ""),
    ("sampling_param_best_of", "INT32", "1", ONE, ALWAYS, ""),
    ("sampling_param_temperature", "FP32", "1", FIRST, ALWAYS, ""),
    ("sampling_param_top_k", "INT32", "1", FIRST, ALWAYS, ""),
    ("sampling_param_top_p", "FP32", "1", FIRST, ALWAYS, ""),
    ("sampling_param_frequency_penalty", "FP32", "1", FIRST, ALWAYS, ""),
    ("sampling_param_presence_penalty", "FP32", "1", FIRST, ALWAYS, ""),
    ("sampling_param_max_tokens", "INT32", "1", FIRST, ALWAYS, ""),
    ("sampling_param_stop", "STRING", "-1", FIRST, ALWAYS, ""),
    ("sampling_param_seed", "UINT64", "1", FIRST, ALWAYS, ""),
    ("sampling_param_exclude_input_from_output", "BOOL", "1", FIRST, ALWAYS, ""),
    ("sampling_param_return_perf_metrics", "BOOL", "1", ONE, ALWAYS, ""),
    ("return_finish_reason", "BOOL", "1", FIRST, ALWAYS, ""),
    ("return_stop_reason", "BOOL", "1", FIRST, ALWAYS, ""),
    ("return_cumulative_logprob", "BOOL", "1", FIRST, ALWAYS, ""),
    ("stop", "BOOL", "1", ONE, ALWAYS, ""),
]
OUTPUTS = [
    ("text_output", "STRING", "-1", FIRST, ALWAYS, ""),
    ("finish_reason", "STRING", "-1", FIRST, ALWAYS, ""),
    ("stop_reason", "STRING", "-1", FIRST, ALWAYS, ""),
    ("cumulative_logprob", "FP32", "-1", FIRST, ALWAYS, ""),
    *((name, datatype, "-1", ONE, ALWAYS, "") for name, datatype in (
        ("kv_cache_reused_block", "INT32"), ("kv_cache_missed_block", "INT32"), ("kv_cache_alloc_new_blocks", "INT32"),
        ("kv_cache_alloc_total_blocks", "INT32"), ("kv_cache_hit_rate", "FP32"))),
    *((name, datatype, "1", ONE, ALWAYS, "") for name, datatype in (
        ("arrival_time_ns", "INT64"), ("first_scheduled_time_ns", "INT64"), ("first_token_time_ns", "INT64"),
        ("last_token_time_ns", "INT64"), ("acceptance_rate", "FP32"), ("total_accepted_draft_tokens", "INT32"),
        ("total_draft_tokens", "INT32"))),
]  # fmt: skip
MODEL_FILE = """# The model that is served: a directory, or org/name in the local cache of the hub.
model: {model}
tensor_parallel_size: 1
pipeline_parallel_size: 1
triton_config:
  max_batch_size: 0
  decoupled: {decoupled}
"""


def write_llm_api_repository(root, release, model="org/name", decoupled=False):
    directory = pathlib.Path(root) / "tensorrt_llm"
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(
        'name: "tensorrt_llm"\nbackend: "python"\ninstance_group [ { count: 1, kind: KIND_CPU } ]\n'
        + io_text("input", INPUTS, release)
        + io_text("output", OUTPUTS, release)
    )
    (directory / "1/model.yaml").write_text(MODEL_FILE.format(model=model, decoupled=decoupled))
