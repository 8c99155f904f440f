#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzzers tokenizer_json, tokenizer_ranks, infer_request and chat_template: small inputs of every
accepted form.

usage: .venv/bin/python tests/fuzz/make_text_seeds.py
"""

import pathlib
import struct
import sys

from tritonclient.grpc import service_pb2

SEEDS = pathlib.Path(__file__).parent / "seeds"
TESTS = pathlib.Path(__file__).parents[1]
sys.path += [str(TESTS / "tokenizer"), str(TESTS / "chat_template")]

import deepseek_templates  # noqa: E402
import gemma_4_template  # noqa: E402
import harmony_template  # noqa: E402
import phi_templates  # noqa: E402
import recipes  # noqa: E402
import templates  # noqa: E402
import tiktoken_recipes  # noqa: E402


def write(fuzzer, name, data):
    path = SEEDS / fuzzer / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def tokenizer_json():
    makers = {
        "byte_level": lambda: recipes._byte_level(vocab_size=300),
        "llama3": lambda: recipes._byte_level(recipes.LLAMA3, vocab_size=300, bos=True),
        "metaspace": lambda: recipes._metaspace("first", 600),
        "normalizers": lambda: recipes._metaspace("normalizers", 600),
        "unknown": recipes.RECIPES["unknown"],
    }
    for name, make in makers.items():
        write("tokenizer_json", name, make().to_str().encode() + b"\xffA cat, 12 caf\xc3\xa9s\n")


def tokenizer_ranks():
    for name, ranks in (
        ("trained", tiktoken_recipes.trained(recipes.LLAMA3, 300)),
        ("shuffled", tiktoken_recipes.shuffled("ab ", 3, 5)),
        ("gap", {token: rank + (rank > 270) for token, rank in tiktoken_recipes.shuffled("ab", 4, 6).items()}),
    ):
        write("tokenizer_ranks", name, tiktoken_recipes.text_of(ranks) + b"\xff\x02A cat, 12 abba <|eot_id|> caf\xc3\xa9\n ")


def tensor(request, name, datatype, shape, raw=None, **contents):
    made = request.inputs.add(name=name, datatype=datatype, shape=shape)
    if raw is not None:
        request.raw_input_contents.append(raw)
    for field, values in contents.items():
        getattr(made.contents, field).extend(values)


def infer_request():
    raw = service_pb2.ModelInferRequest(model_name="ensemble", id="1")
    tensor(raw, "text_input", "BYTES", [1, 1], struct.pack("<I", 3) + b"abc")
    tensor(raw, "max_tokens", "INT32", [1, 1], struct.pack("<i", 7))
    tensor(raw, "stream", "BOOL", [1, 1], b"\x01")
    raw.outputs.add(name="text_output")
    raw.parameters["priority"].int64_param = 1
    raw.parameters["triton_enable_empty_final_response"].bool_param = True
    write("infer_request", "raw", raw.SerializeToString())

    typed = service_pb2.ModelInferRequest(model_name="tensorrt_llm", model_version="1")
    tensor(typed, "input_ids", "INT32", [1, 2], int_contents=[5, 6])
    tensor(typed, "temperature", "FP32", [1, 1], fp32_contents=[0.5])
    tensor(typed, "words", "BYTES", [1, 2], bytes_contents=[b"a", b""])
    tensor(typed, "seed", "UINT64", [1, 1], uint64_contents=[2**63])
    typed.parameters["timeout"].int64_param = 5
    typed.parameters["note"].string_param = "x"
    write("infer_request", "typed", typed.SerializeToString())

    sequence = service_pb2.ModelInferRequest(model_name="m")
    sequence.parameters["sequence_id"].string_param = "s"
    sequence.parameters["sequence_start"].bool_param = True
    made = sequence.inputs.add(name="x", datatype="FP16", shape=[0, 4])
    made.parameters["binary_data_size"].int64_param = 0
    write("infer_request", "sequence", sequence.SerializeToString())


def chat_template():
    for module in (templates, phi_templates, deepseek_templates, gemma_4_template, harmony_template):
        for name, text in module.ALL.items():
            write("chat_template", name, text.encode())


if __name__ == "__main__":
    tokenizer_json()
    tokenizer_ranks()
    infer_request()
    chat_template()
