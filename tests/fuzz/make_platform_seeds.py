# SPDX-License-Identifier: Apache-2.0
"""Writes seeds/platform_calls, cog_body, llm_api_file and peft_adapter: a request for each route of a hosting platform, bodies
of predictions, files of models of the LLM API and settings of adapters.

usage: python3 make_platform_seeds.py
"""

import json
import pathlib
import struct

SEEDS = pathlib.Path(__file__).parent / "seeds"
SAGEMAKER, VERTEX_AI = b"\0", b"\1"
INFER = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "data": [4, 5]}], "parameters": {"cache_salt": "s"}}
REDIRECTS = ["v2", "v2/health/live", "v2/models/m", "v2/models/m/infer", "v2/repository/index", "v2/systemsharedmemory/status",
             "metrics", "v2/../x"]  # fmt: skip
PREDICTION = {
    "input": {"prompt": "p", "max_tokens": "12", "temperature": 0.5, "stop_sequences": "a,b", "cache_salt": "s", "seed": 3},
    "id": "1", "created_at": 1700000000, "webhook": "http://example.com/x", "webhook_events_filter": ["start", "completed"],
    "output_file_prefix": None, "more": [1],
}  # fmt: skip
BODIES = {
    "whole": PREDICTION,
    "template": {"input": {"prompt": "p", "prompt_template": "{{ {system_prompt} {prompt}"}},
    "none": {"input": {"prompt": "p", "top_k": None, "max_tokens": 1e300, "min_tokens": "x", "log_performance_metrics": "yes"}},
    "wrong": {"input": [], "id": {}, "created_at": "2024-02-30T25:61", "webhook": "ftp://x", "webhook_events_filter": ["x"]},
}
YAML = {
    "whole": "model: org/name\ntensor_parallel_size: 1\nbackend: x\ntriton_config:\n  max_batch_size: 8\n  decoupled: True\n",
    "anchors": "model: &a [x]\nb: [*a, *a]\ntriton_config: {max_batch_size: -1}\n",
    "ranks": "model: /m\npipeline_parallel_size: 2\n",
    "broken": "model: [\n\t}",
}
ADAPTER = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "target_modules": ["q_proj"]}
ADAPTERS = {
    "plain": ADAPTER,
    "patterns": ADAPTER | {"use_rslora": True, "alpha_pattern": {"q_proj": 8, "layers.0.self_attn.q_proj": 1}},
    "refused": ADAPTER | {"use_dora": True, "modules_to_save": ["lm_head"], "init_lora_weights": "pissa"},
    "wrong": {"r": -1, "lora_alpha": "x", "bias": 1, "alpha_pattern": [], "rank_pattern": {"x": None}},
}


def request(method, path, body=b"", *fields):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def binary(path, media_type):
    head = json.dumps(
        {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "parameters": {"binary_data_size": 8}}]}
    ).encode()
    return request("POST", path, head + struct.pack("<2i", 4, 5), f"Content-Type: {media_type};json-header-size={len(head)}")


def calls():
    infer = json.dumps(INFER).encode()
    load = json.dumps({"model_name": "h2", "url": "/tmp/none"}).encode()
    cases = {
        "ping": request("GET", "/ping"),
        "invocations": request("POST", "/invocations", infer),
        "invocations_binary": binary("/invocations", "application/vnd.sagemaker-triton.binary+json"),
        "list": request("GET", "/models"),
        "load": request("POST", "/models", load, "X-Amzn-SageMaker-Target-Model: t"),
        "load_nul": request("POST", "/models", b'{"model_name":"a\\u0000","url":"/tmp\\u0000/x"}'),
        "describe": request("GET", "/models/h"),
        "invoke": request("POST", "/models/h/invoke", infer),
        "unload": request("DELETE", "/models/%68"),
    }
    cases = {name: SAGEMAKER + data for name, data in cases.items()}
    vertex = {"health": request("GET", "/health"), "predict": request("POST", "/predict", infer)}
    vertex["predict_binary"] = binary("/predict", "application/vnd.vertex-ai-triton.binary+json")
    for i, path in enumerate(REDIRECTS):
        vertex[f"redirect_{i}"] = request("POST", "/predict", infer, f"X-Vertex-Ai-Triton-Redirect: {path}")
    return cases | {name: VERTEX_AI + data for name, data in vertex.items()}


def main():
    all_seeds = {
        "platform_calls": calls(),
        "cog_body": {name: json.dumps(body).encode() for name, body in BODIES.items()},
        "llm_api_file": {name: text.encode() for name, text in YAML.items()},
        "peft_adapter": {name: json.dumps(settings).encode() for name, settings in ADAPTERS.items()},
    }
    all_seeds["peft_adapter"]["weights"] = json.dumps(ADAPTER).encode() + b"\0" + struct.pack("<Q", 2) + b"{}"
    for folder, cases in all_seeds.items():
        (SEEDS / folder).mkdir(parents=True, exist_ok=True)
        for name, data in cases.items():
            (SEEDS / folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
