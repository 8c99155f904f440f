# SPDX-License-Identifier: Apache-2.0
"""`inflight shadow` (docs/shadow.md) of NVIDIA's Triton server with our plug-in and our own server: the same answers."""

import base64
import json
import os
import pathlib
import subprocess

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
STORY = {"text_input": "Once upon a time", "max_tokens": 24}
REQUESTS = [
    {"path": "/v2/health/ready"},
    {"path": "/v2/models/ensemble/ready"},
    {"path": "/v2/models/tensorrt_llm"},
    {"path": "/v2/models/ensemble/generate", "body": STORY},
    {"path": "/v2/models/ensemble/generate", "body": STORY | {"stop_words": ["."], "return_log_probs": True}},
    {"path": "/v2/models/ensemble/generate_stream", "body": STORY | {"stream": True}},
    {"path": "/v2/models/tensorrt_llm_bls/generate_stream", "body": STORY | {"stream": True, "max_tokens": 8}},
    {"path": "/v2/models/nobody/generate", "body": STORY},
    {"path": "/v2/models/ensemble/generate", "body": {"text_input": 5}},
]


def shadow(old, new, requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    ignored = [f"--ignore=sequence_{name}" for name in ("id", "start", "end")]
    command = [INFLIGHT, "shadow", f"--old={old}", f"--new={new}", "--requests=-", *ignored]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{len(requests)} requests: {len(requests)} equal")


def test_both_servers_give_the_same_answers(triton, ours):
    shadow(f"http://{triton.http}", f"http://{ours.http}", REQUESTS)


def infer(model, text="Once upon a time", max_tokens=24, stream=None):
    """A ModelInferRequest in protobuf's JSON."""
    inputs = [
        ("text_input", "BYTES", {"bytes_contents": [base64.b64encode(text.encode()).decode()]}),
        ("max_tokens", "INT32", {"int_contents": [max_tokens]}),
        *([] if stream is None else [("stream", "BOOL", {"bool_contents": [stream]})]),
    ]
    tensors = [{"name": name, "datatype": datatype, "shape": [1, 1], "contents": contents} for name, datatype, contents in inputs]
    return {"model_name": model, "id": "r", "inputs": tensors}


def test_both_servers_give_the_same_answers_over_grpc(triton, ours):
    shadow(f"grpc://{triton.grpc}", f"grpc://{ours.grpc}", [
        {"rpc": "ServerReady", "message": {}},
        {"rpc": "ModelReady", "message": {"name": "ensemble"}},
        {"rpc": "ModelMetadata", "message": {"name": "tensorrt_llm"}},
        {"rpc": "ModelStreamInfer", "message": infer("ensemble", stream=True)},
        {"rpc": "ModelStreamInfer", "messages": [infer("ensemble", max_tokens=3), infer("ensemble", "The capital of", 5)]},
        {"rpc": "ModelStreamInfer", "message": infer("tensorrt_llm_bls", max_tokens=8, stream=True)},
        {"rpc": "ModelInfer", "message": infer("nobody")},
        {"rpc": "ModelMetadata", "message": {"name": "nobody"}},
    ])  # fmt: skip
