# SPDX-License-Identifier: Apache-2.0
"""The families of the TensorRT-LLM back-end: HELP texts and labels are those of docs/metrics.md."""

import re

import pytest
import requests
from live_server import DEMO, needs_gpu, start_server
from release_repositories import write_repository

HELP = {
    "nv_trt_llm_request_metrics": "TRT LLM request metrics",
    "nv_trt_llm_runtime_memory_metrics": "TRT LLM runtime memory metrics",
    "nv_trt_llm_kv_cache_block_metrics": "TRT LLM KV cache block metrics",
    "nv_trt_llm_inflight_batcher_metrics": "TRT LLM inflight_batcher-specific metrics",
    "nv_trt_llm_v1_metrics": "TRT LLM v1-specific metrics",
    "nv_trt_llm_general_metrics": "General TRT LLM metrics",
}
COMMON = {
    "nv_trt_llm_request_metrics": ("request_type", {"active", "max", "scheduled", "context", "waiting"}),
    "nv_trt_llm_runtime_memory_metrics": ("memory_type", {"cpu", "gpu", "pinned"}),
    "nv_trt_llm_kv_cache_block_metrics": ("kv_cache_block_type", {"max", "free", "used", "tokens_per", "fraction"}),
    "nv_trt_llm_general_metrics": ("general_type", {"timestamp", "iteration_counter"}),
}
IN_FLIGHT = {
    "nv_trt_llm_inflight_batcher_metrics": (
        "inflight_batcher_specific_metric",
        {"total_context_tokens", "generation_requests", "micro_batch_id", "paused_requests"},
    ),
}
V1 = {
    "nv_trt_llm_v1_metrics": ("v1_specific_metric", {"total_context_tokens", "total_generation_tokens", "empty_generation_slots"})
}
SINCE_0_16 = {
    "nv_llm_input_token_len": ("response_metric_type", {"total_input_tokens"}),
    "nv_llm_output_token_len": ("response_metric_type", {"total_output_tokens"}),
}
SAMPLE = re.compile(r"^(\w+)\{(.*)\} \S+$")


def check_page(server, families):
    """`families`: {name: (label, values)}, all of the page whose names begin like the back-end's."""
    helps, kinds, found = {}, {}, {}
    for line in requests.get(f"http://{server.metrics}/metrics", timeout=30).text.splitlines():
        if line.startswith("# "):
            _, what, name, text = line.split(" ", 3)
            (helps if what == "HELP" else kinds)[name] = text
        elif line.startswith(("nv_trt_llm_", "nv_llm_")):
            name, labels = SAMPLE.match(line).groups()
            pairs = [pair.split("=") for pair in labels.split(",") if not pair.startswith("le=")]
            names = [key for key, _ in pairs]
            assert names == sorted(names)
            (label,) = set(names) - {"model", "version"}
            family = re.sub("_(bucket|count|sum)$", "", name) if kinds.get(name) is None else name
            assert found.setdefault(family, (label, set()))[0] == label
            found[family][1].add(dict(pairs)[label].strip('"'))
            assert (dict(pairs)["model"], dict(pairs)["version"]) == ('"tensorrt_llm"', '"1"')
    assert found == families
    for name in families:
        assert helps[name] == HELP.get(name, helps[name])
        assert kinds[name] == ("gauge" if name in HELP else "histogram")


def test_of_0_11_in_flight(server):
    check_page(server, COMMON | IN_FLIGHT)


@pytest.mark.parametrize(("strategy", "own"), [("V1", V1), ("inflight_fused_batching", IN_FLIGHT)])
def test_of_0_19(tmp_path, strategy, own):
    repository = write_repository(
        tmp_path / "repository", 19, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="False", batching_strategy=strategy
    )
    added = {"nv_trt_llm_kv_cache_block_metrics": {"reused"}}
    common = {name: (label, values | added.get(name, set())) for name, (label, values) in COMMON.items()}
    server = start_server(tmp_path, None, "--model-repository", repository)
    try:
        check_page(server, common | own | SINCE_0_16)
    finally:
        assert server.stop() == 0


def samples(server, prefix):
    """{name: {labels: value}} of the families whose names begin so."""
    found = {}
    for line in requests.get(f"http://{server.metrics}/metrics", timeout=30).text.splitlines():
        if line.startswith(prefix):
            name, _, labels = line.split(" ")[0].partition("{")
            found.setdefault(name, {})[labels.rstrip("}")] = float(line.split(" ")[1])
    return found


def test_of_the_machine(server):
    cpu = samples(server, "nv_cpu_")
    assert set(cpu) == {"nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"}
    assert 0 <= cpu["nv_cpu_utilization"][""] <= 1
    assert 0 < cpu["nv_cpu_memory_used_bytes"][""] < cpu["nv_cpu_memory_total_bytes"][""]


@needs_gpu
def test_of_gpus(server):
    gpu = samples(server, "nv_gpu_") | samples(server, "nv_energy_")
    assert set(gpu) >= {"nv_gpu_utilization", "nv_gpu_memory_total_bytes", "nv_gpu_memory_used_bytes"}
    for label, used in gpu["nv_gpu_memory_used_bytes"].items():
        assert label.startswith('gpu_uuid="GPU-')
        assert 1e9 < used < gpu["nv_gpu_memory_total_bytes"][label], "at least the model's weights and KV cache"


def test_the_machine_s_can_be_switched_off(tmp_path):
    server = start_server(tmp_path, DEMO, "--allow-cpu-metrics=false", "--allow-gpu-metrics=false")
    try:
        assert samples(server, "nv_cpu_") | samples(server, "nv_gpu_") | samples(server, "nv_energy_") == {}
    finally:
        assert server.stop() == 0
