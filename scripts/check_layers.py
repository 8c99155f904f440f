#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each folder of src/ includes only what its layer may.

Checks too that the arrows form no circle, that each is used, and that docs/architecture.md lists the same ones.
Prints each forbidden include as FILE:LINE and exits 1 if there is anything to mend.
"""

import graphlib
import re
import sys

from checks import CPP, ROOT, files_in, verdict

# folder -> folders it may include, besides itself, `base` and include/inflight.
ARROWS = {
    "base": [],
    "old_glibc": [],
    "config": [],
    "launch": [],
    "parameters": [],
    "tensor": [],
    "comm": ["launch", "tensor"],
    "ops": ["tensor"],
    "ops/reference": ["ops", "tensor"],
    "ops/cpu": ["ops"],
    "ops/cuda": ["ops", "tensor"],
    "gguf": [],
    "tokenizer": ["gguf"],
    "chat_template": ["gguf"],
    "artifact": ["gguf", "tensor"],
    "quantized": ["artifact", "tensor"],
    "model": ["comm", "ops", "tensor", "artifact"],
    "builder": ["model", "quantized", "artifact", "gguf", "ops", "tensor"],
    "kv_cache": [],
    "scheduler": ["kv_cache"],
    "decoding": ["parameters"],
    "decoding/cuda": ["decoding", "ops/cuda", "tensor"],
    "executor": ["parameters", "scheduler", "kv_cache", "decoding", "decoding/cuda", "model", "comm", "ops", "tensor"],
    "executor/cuda": ["executor", "scheduler", "kv_cache", "decoding", "decoding/cuda", "model", "comm", "ops", "ops/cuda",
                      "tensor"],
    "flight_recorder": ["executor", "scheduler", "json"],
    "receipts": ["parameters", "json"],
    "kv_events": [],
    "loader": ["executor", "flight_recorder", "kv_events", "builder", "model", "comm", "launch", "artifact", "tensor"],
    "object_store": [],
    "hub": ["object_store", "artifact"],
    "contract": ["parameters", "tensor"],
    "sandbox": [],
    "doctor": ["ops/cpu", "sandbox", "tensor"],
    "json": [],
    "grammar": ["json"],
    "answer_parts": ["json"],
    "conversation": ["answer_parts", "json"],
    "proto": [],
    # serving's rooms, from the bottom up; a folder without a row is no layer.
    "serving/tensors": ["contract", "proto"],
    "serving/configuration": ["serving/tensors", "contract", "proto"],
    "serving/memory": ["tensor"],
    "serving/statistics": ["serving/configuration", "json", "proto"],
    "serving/trace": ["serving/statistics", "serving/tensors", "json", "tensor"],
    "serving/core": ["parameters", "serving/tensors", "serving/memory", "serving/statistics", "serving/trace", "proto"],
    "serving/sequences": ["serving/core", "serving/tensors", "proto"],
    "serving/instances": ["serving/sequences", "serving/core", "serving/configuration", "serving/tensors", "proto"],
    "serving/conformance": ["serving/core", "serving/configuration", "serving/tensors", "proto"],
    "serving/llm": ["serving/core", "serving/statistics", "serving/configuration", "serving/tensors", "contract",
                    "receipts", "artifact", "tensor", "proto"],
    "serving/pipelines": ["serving/llm", "serving/core", "serving/configuration", "contract", "conversation"],
    "serving/ensemble": ["serving/core", "serving/tensors", "proto"],
    "serving/repository": ["serving/memory", "serving/ensemble", "serving/pipelines", "serving/llm", "serving/conformance",
                           "serving/instances", "serving/sequences", "serving/core", "serving/trace",
                           "serving/statistics", "serving/configuration", "serving/tensors", "contract", "parameters",
                           "loader", "receipts", "builder", "artifact", "object_store", "proto"],
    "serving/server": ["serving/repository", "serving/llm", "serving/core", "serving/trace", "serving/statistics",
                       "serving/memory"],
    "serving/testing": ["serving/server", "serving/repository", "serving/pipelines", "serving/llm", "serving/core",
                        "serving/memory", "serving/configuration"],
    "protocol/tcp_listener": ["protocol/tls"],
    "protocol/http_listener": ["protocol/tcp_listener", "protocol/tls"],
    "protocol/tls": [],
    "protocol/grpc_listener": ["protocol/tcp_listener", "protocol/tls"],
    "protocol/grpc_client": ["protocol/grpc_listener"],
    "protocol/kserve/access": [],
    "protocol/kserve/http": ["protocol/http_listener", "protocol/kserve/access", "serving/server", "serving/core",
                             "serving/statistics", "serving/memory", "serving/tensors", "config", "json", "proto"],
    "protocol/kserve/grpc": ["protocol/grpc_listener", "protocol/kserve/access", "protocol/tls", "serving/server",
                             "serving/repository", "serving/core", "serving/memory", "serving/tensors", "json",
                             "proto"],
    "protocol/metrics": ["protocol/http_listener", "serving/server", "serving/statistics"],
    "protocol/otlp": ["protocol/http_client", "serving/trace", "json"],
    "protocol/sagemaker": ["protocol/kserve/http", "protocol/http_listener", "serving/server", "serving/repository",
                           "serving/configuration", "json"],
    "protocol/http_client": [],
    "protocol/cog": ["protocol/kserve/http", "protocol/http_listener", "protocol/http_client", "serving/server", "serving/core",
                     "json", "proto"],
    "protocol/openai": ["protocol/kserve/http", "protocol/kserve/access", "protocol/http_listener", "serving/server",
                        "serving/core", "conversation", "answer_parts", "config", "json", "parameters"],
    "protocol/page": ["protocol/kserve/http", "protocol/http_listener"],
    "protocol/anthropic": ["protocol/openai", "protocol/kserve/http", "protocol/kserve/access", "protocol/http_listener",
                           "answer_parts", "json"],
    "protocol/vertex_ai": ["protocol/kserve/http", "protocol/http_listener", "serving/server"],
    "shadow": ["protocol/grpc_client", "protocol/grpc_listener", "protocol/http_client", "protocol/http_listener", "json",
               "proto"],
    "protocol/triton_backend": ["serving/repository", "serving/llm", "serving/core", "serving/configuration", "contract",
                                "tensor"],
}
# What tests and their fakes may include besides.
TEST_ARROWS = {
    "conversation": ["tokenizer"],
    "protocol/http_client": ["protocol/http_listener"],
    "serving/memory": ["serving/testing"],
    "serving/statistics": ["serving/testing"],
    "serving/core": ["serving/configuration"],
    "serving/sequences": ["serving/conformance", "serving/instances", "serving/testing"],
    "serving/instances": ["serving/testing"],
    "serving/llm": ["serving/testing"],
    "serving/pipelines": ["serving/testing"],
    "serving/ensemble": ["serving/testing"],
    "serving/repository": ["serving/testing", "tensor", "executor"],
    "serving/server": ["serving/testing"],
    "protocol/kserve/http": ["serving/testing"],
    "protocol/kserve/grpc": ["serving/testing"],
    "protocol/openai": ["serving/testing"],
    "protocol/metrics": ["protocol/kserve/http"],
    "protocol/page": ["protocol/anthropic", "protocol/openai"],
}
TEST = re.compile(r"(fake_.*|.*_fixture|.*_test)\.(h|cc)")
# The one file that joins the backends behind ops/backend.h.
EXCEPTIONS = {("src/ops/backend.cc", "ops/reference"), ("src/ops/backend.cc", "ops/cpu"),
              ("src/ops/backend.cc", "ops/cuda")}
# The oracle computes by itself: of others' code it calls the checks of shapes and the conversions of single elements, and
# the headers of operators and of weights give it shapes, names and layouts.
ORACLE = "ops/reference"
ORACLE_HEADERS = {"ops/validate.h", "tensor/element.h", "ops/add_norm.h", "ops/attention.h", "ops/backend.h", "ops/embed.h",
                  "ops/experts.h", "ops/linear.h", "ops/lora.h", "ops/qkv_rope_kv.h", "ops/quantize.h", "ops/weight.h"}
NOT_FOR_ORACLE = re.compile(r"\b(?:UnpackWeightRow|AddWeightRow|PackWeight)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


# "| `src/base/` | what it is | what it may include |": a row of the table in docs/architecture.md.
ROW = re.compile(r"^\| `src/([^`]+)/` \|.*\| ([^|]*)\|$", re.MULTILINE)


def layer_of(path: str) -> str | None:
    """The layer that owns a path below src/, by its longest declared prefix; messages are generated."""
    if path.endswith(".pb.h"):
        return "proto"
    parts = path.split("/")
    for length in (3, 2, 1):
        name = "/".join(parts[:length])
        if len(parts) > length and name in ARROWS:
            return name
    return None


def forbidden_includes() -> tuple[list[str], int, set[tuple[str, str]]]:
    """What is wrong in files, how many were read, and the arrows that sources other than tests need."""
    problems, checked, used = [], 0, set()
    for name in files_in(ROOT, "src"):
        if not name.endswith(CPP):
            continue
        path = ROOT / name
        layer = layer_of(name.removeprefix("src/"))
        if layer is None:
            problems.append(f"{name}: lies in no declared layer")
            continue
        checked += 1
        allowed = ARROWS[layer] + (TEST_ARROWS.get(layer, []) if TEST.fullmatch(path.name) else [])
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if layer == ORACLE and (match := NOT_FOR_ORACLE.search(line)):
                problems.append(f"{name}:{number}: the oracle may not call {match[0]}, which kernels are tested by")
            match = INCLUDE.match(line)
            if not match or match[1].startswith("inflight/"):
                continue
            target = layer_of(match[1])
            if layer == ORACLE and target not in {ORACLE, "base"} and match[1] not in ORACLE_HEADERS:
                problems.append(f"{name}:{number}: the oracle may not include {match[1]}")
            used.add((layer, target))
            if target is not None and target not in {layer, "base", *allowed} and (name, target) not in EXCEPTIONS:
                problems.append(f"{name}:{number}: {layer} may not include {target} ({match[1]})")
    return problems, checked, used


def wrong_arrows(used: set[tuple[str, str]]) -> list[str]:
    problems = []
    try:
        graphlib.TopologicalSorter(ARROWS).prepare()
    except graphlib.CycleError as circle:
        problems.append("arrows form a circle: " + " -> ".join(reversed(circle.args[1])))
    for arrows in (ARROWS, TEST_ARROWS):
        for layer, targets in arrows.items():
            problems += [f"check_layers.py: {layer} -> {target} is used by no file"
                         for target in targets if (layer, target) not in used]
    return problems


def wrong_rows() -> list[str]:
    rows = {row[1]: row[2].split() for row in ROW.finditer((ROOT / "docs/architecture.md").read_text())}
    problems = [f"docs/architecture.md: has a row for src/{name}/, which is no layer" for name in rows.keys() - ARROWS]
    for layer, targets in ARROWS.items():
        if sorted(rows.get(layer, ["no row"])) != sorted(targets):
            problems.append(f"docs/architecture.md: src/{layer}/: has '{' '.join(rows.get(layer, ['no row']))}', "
                            f"the arrows are '{' '.join(targets)}'")
    return problems


def main() -> int:
    problems, checked, used = forbidden_includes()
    problems += wrong_arrows(used) + wrong_rows()
    return verdict(problems, f"layers: {checked} files, no forbidden include")


if __name__ == "__main__":
    sys.exit(main())
