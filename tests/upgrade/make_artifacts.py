#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what a version of the program leaves on disk, for the tests of later ones, in a folder that is named by it.

    INFLIGHT_BIN_DIR=build/united/bin .venv/bin/python tests/upgrade/make_artifacts.py

Made once for each version, when it is released (docs/releasing.md), of model/ (make_model.py); never written anew:
later versions must read what this one wrote. All is written by the program, but for what people write:

    engines/NAME    of each layout of weights, one of them of two ranks; tokenizer and template beside the first alone
    checkpoint/     of two ranks
    journal         of the flight recorder: the texts of expected.json, asked one after another
    chat.json       what `inflight chat` saved after the first question of expected.json
    options.json    flags and file keys of each command, with type and default, by its own page
    serve.json      an option file; keys.txt and key, a file of keys and the key that is in it
    repository/     config.pbtxt of the five models with every key, engine_dir and tokenizer_dir open as in upstream's
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import requests

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "compat"))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "protocol"))
from live_server import start_server
from release_repositories import OURS, fill_template, write_repository

FOLDER = pathlib.Path(__file__).resolve().parent

os.environ["INFLIGHT_BIN_DIR"] = os.path.abspath(os.environ["INFLIGHT_BIN_DIR"])
INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
ENGINES = {
    "float32": ("--dtype", "float32", "--max-beam-width", "2"),
    "bfloat16_ranks": ("--dtype", "bfloat16"),
    "int8": ("--dtype", "float32", "--use-weight-only"),
    "int4": ("--dtype", "float32", "--use-weight-only", "--weight-only-precision", "int4"),
}
NOT_BESIDE_EVERY_ENGINE = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
SERVE = {
    "id": "upgraded", "device": "cpu", "dtype": "float32", "threads": 1, "max_batch_size": 4, "max_num_tokens": 64,
    "max_seq_len": 96, "max_kv_tokens": 1024, "kv_block_size": 16, "kv_cache_free_memory_fraction": 0.5,
    "enable_prefix_reuse": True, "enable_chunked_prefill": True, "scheduler_policy": "max_utilization",
    "chunking_policy": "equal_progress", "step_time_goal_ms": 100, "max_queue_size": 16, "max_queue_delay_us": 10,
    "exit_on_error": True, "strict_readiness": True, "model_control_mode": "none", "repository_poll_secs": 20,
    "http_address": "127.0.0.1", "http_port": 0, "grpc_address": "127.0.0.1", "grpc_port": 0, "metrics_address": "127.0.0.1",
    "metrics_port": 0, "allow_metrics": True, "http_max_connections": 64, "exit_timeout_secs": 10, "log_verbose": 1,
    "log_info": True, "log_format": "default", "cache_config": ["local,size=1048576"], "trace_config": ["level=OFF", "rate=10"],
    "request_memory_byte_size": 268435456, "metrics_config": ["counter_latencies=true"],
}  # fmt: skip
KEYS = {
    "triton_backend": "tensorrtllm", "triton_max_batch_size": 4, "decoupled_mode": "True", "max_queue_size": 32,
    "max_queue_delay_microseconds": 100, "logits_datatype": "TYPE_FP32", "encoder_input_features_data_type": "TYPE_FP16",
    "prompt_embedding_table_data_type": "TYPE_FP16", "preprocessing_instance_count": 1, "postprocessing_instance_count": 1,
    "bls_instance_count": 1, "max_beam_width": 2, "batching_strategy": "inflight_fused_batching",
    "max_tokens_in_paged_kv_cache": 2048, "max_attention_window_size": 128, "sink_token_length": 0,
    "batch_scheduler_policy": "max_utilization", "kv_cache_free_gpu_mem_fraction": 0.5, "kv_cache_host_memory_bytes": 0,
    "kv_cache_onboard_blocks": "True", "exclude_input_in_output": "True", "cancellation_check_period_ms": 100,
    "stats_check_period_ms": 50, "iter_stats_max_iterations": 100, "request_stats_max_iterations": 10,
    "enable_kv_cache_reuse": "True", "normalize_log_probs": "True", "enable_chunked_context": "True", "gpu_device_ids": 0,
    "participant_ids": "", "num_nodes": 1, "lora_cache_optimal_adapter_size": 8, "lora_cache_max_adapter_size": 8,
    "lora_cache_gpu_memory_fraction": 0.05, "lora_cache_host_memory_bytes": 1048576, "decoding_mode": "top_k_top_p",
    "medusa_choices": "", "eagle_choices": "", "gpu_weights_percent": "1.0", "enable_context_fmha_fp32_acc": "False",
    "multi_block_mode": "False", "cross_kv_cache_fraction": "", "cuda_graph_mode": "False", "cuda_graph_cache_size": 0,
    "speculative_decoding_fast_logits": "False", "lookahead_window_size": "", "lookahead_ngram_size": "",
    "lookahead_verification_set_size": "", "lora_prefetch_dir": "", "guided_decoding_backend": "",
    "xgrammar_tokenizer_info_path": "", "encoder_engine_dir": "", "add_special_tokens": "True", "skip_special_tokens": "True",
    "accumulate_tokens": "False", "tensorrt_llm_model_name": "tensorrt_llm", "tensorrt_llm_draft_model_name": "",
    "multimodal_encoders_name": "", "multimodal_model_path": "", "hf_model_path": "", "max_num_images": "",
}  # fmt: skip


def run(*args, **kwargs):
    command = [str(arg) for arg in (INFLIGHT, *args)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, **kwargs).stdout


def write_engines(out):
    with tempfile.TemporaryDirectory() as work:
        ranks = pathlib.Path(work) / "ranks"
        run("convert", "--model-dir", FOLDER / "model", "--output-dir", ranks, "--dtype", "bfloat16", "--tp-size", 2)
        for name, options in ENGINES.items():
            source = ranks if name.endswith("_ranks") else FOLDER / "model"
            run("build", "--checkpoint-dir", source, "--output-dir", out / name, "--max-seq-len", 128, *options)
            for file in NOT_BESIDE_EVERY_ENGINE if name != "float32" else ():
                (out / name / file).unlink()


def write_journal(out, file):
    """Each text alone, so that plans do not depend on when a request comes. The header names the folder of the
    engine."""
    with tempfile.TemporaryDirectory() as work:
        engine = shutil.copytree(out / "engines/float32", pathlib.Path(work) / "engine")
        options = ("--record", file, "--record-prompts", "--deterministic", "--kv-block-size", "16")
        server = start_server(pathlib.Path(work), engine, *options, max_kv_tokens=1024)
        for i, case in enumerate(EXPECTED["texts"]):
            body = {"text_input": case["prompt"], "max_tokens": 32, "random_seed": i + 1}
            answer = requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60).json()
            assert answer["text_output"] == case["text"], answer
        assert server.stop() == 0


def write_chat(out, file):
    question = EXPECTED["conversations"][0]["messages"][-1]["content"]
    run("chat", out / "engines/float32", "--temperature", 0, input=f"{question}\n/save {file}\n")


def options_of(page):
    """{command: {flag: [file key, type, default and bounds]}} of what has an effect."""
    found = {}
    for section in page.split("\n## inflight ")[1:]:
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `--")]
        kept = [row for row in rows if not re.match(r"(Refused|No effect):", row[4])]
        found[section.split("\n", 1)[0]] = {
            row[0].strip("| `"): [row[1].strip("` "), row[2].strip(), row[3].strip()] for row in kept
        }
    return found


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def main():
    version = run("--version").split()[1]
    out = FOLDER / version
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    write_engines(out / "engines")
    run("convert", "--model-dir", FOLDER / "model", "--output-dir", out / "checkpoint", "--dtype", "float16", "--tp-size", 2)
    write_journal(out, out / "journal")
    write_chat(out, out / "chat.json")
    write_json(out / "options.json", options_of(run("options")))
    write_json(out / "serve.json", SERVE)
    key, line = (row.split()[1] for row in run("key").splitlines())
    (out / "key").write_text(key + "\n")
    (out / "keys.txt").write_text(line + "\n")
    write_repository(out / "repository", OURS, **KEYS)
    for path in (out / "repository").glob("*/1"):
        path.rmdir()
    for path in out.rglob("config.pbtxt"):
        assert set(re.findall(r"\$\{(\w+)\}", path.read_text())) <= {"engine_dir", "tokenizer_dir"}, path
        assert fill_template("${engine_dir}", engine_dir=1) == "1"
    total = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {total / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
