# SPDX-License-Identifier: Apache-2.0
"""Writes seeds/grpc_calls and seeds/openai_calls: a request of each method and endpoint, and answers with parts.

usage: .venv/bin/python tests/fuzz/make_call_seeds.py
"""

import json
import pathlib
import struct

from tritonclient.grpc import service_pb2 as pb

SEEDS = pathlib.Path(__file__).parent / "seeds"
PACKED, BROKEN = 1, 2  # Packing of grpc_calls_fuzz.cc


def write(fuzzer, name, data):
    path = SEEDS / fuzzer / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def infer(model, text):
    request = pb.ModelInferRequest(model_name=model, id="1")
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1, 1])
    request.outputs.add(name="text_output")
    request.raw_input_contents.append(struct.pack("<I", len(text)) + text)
    request.parameters["sequence_id"].int64_param = 1
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request.SerializeToString()


def load():
    request = pb.RepositoryModelLoadRequest(model_name="m")
    request.parameters["config"].string_param = json.dumps({"backend": "b"})
    request.parameters["file:1/model.txt"].bytes_param = b"bytes"
    return request.SerializeToString()


def trace():
    request = pb.TraceSettingRequest(model_name="m")
    request.settings["trace_level"].value.append("TIMESTAMPS")
    request.settings["trace_rate"].value.append("2")
    return request.SerializeToString()


def log():
    request = pb.LogSettingsRequest()
    request.settings["log_verbose_level"].uint32_param = 1
    request.settings["log_format"].string_param = "ISO8601"
    return request.SerializeToString()


def reflect(field, text):
    """A ServerReflectionRequest with one text of this number."""
    return bytes([field << 3 | 2, len(text)]) + text


# In the order of the table in inference_service.cc.
METHODS = [
    [b""], [b""],
    [pb.ModelReadyRequest(name="m").SerializeToString()],
    [b""], [b""],
    [pb.ModelMetadataRequest(name="m", version="1").SerializeToString()],
    [pb.ModelConfigRequest(name="m").SerializeToString()],
    [pb.ModelStatisticsRequest(name="m").SerializeToString()],
    [infer("m", b"text")],
    [infer("s", b"one"), infer("m", b"two"), infer("none", b"three")],
    [pb.RepositoryIndexRequest(ready=True).SerializeToString()],
    [load()],
    [pb.RepositoryModelUnloadRequest(model_name="m").SerializeToString()],
    [pb.SystemSharedMemoryStatusRequest(name="r").SerializeToString()],
    [pb.SystemSharedMemoryRegisterRequest(name="r", key="/fuzz_none", byte_size=64).SerializeToString()],
    [pb.SystemSharedMemoryUnregisterRequest(name="r").SerializeToString()],
    [pb.CudaSharedMemoryStatusRequest(name="r").SerializeToString()],
    [pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=bytes(64), byte_size=64).SerializeToString()],
    [pb.CudaSharedMemoryUnregisterRequest(name="r").SerializeToString()],
    [trace()], [log()],
    [reflect(7, b"*"), reflect(4, b"inference.GRPCInferenceService"), reflect(3, b"health.proto")],
    [reflect(6, b"inference.ModelInferRequest")],
]  # fmt: skip


def grpc_calls():
    for i, messages in enumerate(METHODS):
        parts = b"".join(struct.pack("<H", len(message)) + message for message in messages)
        for packing in (0, PACKED) if any(messages) else (0,):
            write("grpc_calls", f"method_{i}_{packing}", bytes([i, packing]) + parts)
    write("grpc_calls", "broken_packing", bytes([8, BROKEN]) + struct.pack("<H", 10) + bytes(10))
    empty = b"\x2a\0" * 500 + b"\x0a\x01m"
    write("grpc_calls", "empty_inputs", bytes([8, PACKED]) + struct.pack("<H", len(empty)) + empty)


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
SAID = [
    {"role": "system", "content": "ab"},
    {"role": "user", "content": [{"type": "text", "text": "abc <s>"}]},
    {"role": "assistant", "content": None, "reasoning_content": "a",
     "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "c"},
]  # fmt: skip
CALL = '<think>a</think>b<tool_call>{"name": "get_weather", "arguments": {"city": "c"}}</tool_call>'
SAMPLING = {"temperature": 0.5, "top_p": 0.9, "seed": 1, "n": 2, "stop": ["x"], "logit_bias": {"1": -5}}
# Endpoint, body, what the model says.
CALLS = {
    "chat": (0, {"messages": SAID, "max_tokens": 5, "logprobs": True, "top_logprobs": 1, **SAMPLING}, "abc"),
    "chat_stream": (0, {"messages": SAID, "stream": True, "stream_options": {"include_usage": True}, "tools": [TOOL]}, CALL),
    "chat_tools": (0, {"messages": SAID, "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}, CALL),
    "chat_schema": (
        0, {"messages": SAID, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}, "{}",
    ),
    "chat_thinks": (0, {"messages": SAID, "chat_template_kwargs": {"enable_thinking": True}, "thinking_budget": 3}, "a</think>b"),
    "completion": (1, {"prompt": ["ab", [1, 2]], "echo": True, "logprobs": 2, "suffix": "", **SAMPLING}, "abc"),
    "completion_stream": (1, {"prompt": "ab", "stream": True, "guided_regex": "a+"}, "aaa"),
    "response": (2, {"input": "ab", "instructions": "c", "text": {"format": {"type": "text"}}, "store": True}, CALL),
    "response_stream": (
        2, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "ab"}]},
                      {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
                      {"type": "function_call_output", "call_id": "c", "output": "x"}],
            "stream": True, "reasoning": {"effort": "low"}, "include": ["message.output_text.logprobs"],
            "tools": [{"type": "function", **TOOL["function"]}]}, CALL,
    ),
    "messages": (
        3, {"model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "a"}],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [{"role": "user", "content": "ab"},
                         {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "get_weather", "input": {}}]},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "c"}]}],
            "tools": [{"name": "get_weather", "input_schema": TOOL["function"]["parameters"]}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}, CALL,
    ),
    "messages_stream": (
        3, {"model": "m", "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "a"}]}, "abc",
    ),
    "count": (4, {"model": "m", "messages": [{"role": "user", "content": "abc"}]}, ""),
    "tokenize": (5, {"prompt": "abc", "add_special_tokens": False}, ""),
    "detokenize": (6, {"tokens": [1, 2, 3]}, ""),
    "embeddings": (7, {"input": "ab"}, ""),
}  # fmt: skip


def openai_calls():
    for name, (endpoint, body, says) in CALLS.items():
        write("openai_calls", name, bytes([endpoint, 2]) + json.dumps(body).encode() + b"\0" + says.encode())
    write("openai_calls", "items", bytes([8, 0]) + b"?limit=2&order=asc&after=a%20b")
    write("openai_calls", "model", bytes([9, 0]) + b"models/m")


if __name__ == "__main__":
    grpc_calls()
    openai_calls()
