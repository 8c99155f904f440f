#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each folder of src/ includes only what its layer may (docs/architecture.md lists the same arrows).

Prints each forbidden include as FILE:LINE and exits 1 if there is any.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# folder -> folders it may include, besides itself, `base` and include/inflight.
ARROWS = {
    "base": [],
    "config": [],
    "tensor": [],
    "ops": ["tensor"],
    "ops/reference": ["ops", "tensor"],
    "ops/cpu": ["ops", "tensor"],
    "ops/cuda": ["ops", "tensor"],
    "ops/comm": ["ops", "tensor"],
    "tokenizer": [],
    "chat_template": [],
    "artifact": ["tensor", "config"],
    "model": ["ops", "tensor", "artifact", "config"],
    "builder": ["model", "artifact", "ops", "tensor", "config"],
    "kv_cache": [],
    "scheduler": ["kv_cache", "config"],
    "decoding": ["ops", "tensor"],
    "decoding/cuda": ["decoding", "ops", "ops/cuda", "tensor"],
    "executor": ["scheduler", "kv_cache", "decoding", "decoding/cuda", "model", "artifact", "ops", "tensor", "config"],
    "executor/cuda": ["executor", "scheduler", "kv_cache", "decoding", "decoding/cuda", "model", "ops", "ops/cuda",
                      "tensor"],
    "contract": ["executor", "tensor", "config"],
    "json": [],
    "proto": [],
    "serving": ["contract", "executor", "builder", "model", "tensor", "tokenizer", "artifact", "config", "proto",
                "json"],
    "protocol": ["serving", "config", "proto", "json"],
}
# The one file that joins the backends behind ops/backend.h.
EXCEPTIONS = {("src/ops/backend.cc", "ops/reference"), ("src/ops/backend.cc", "ops/cpu"),
              ("src/ops/backend.cc", "ops/cuda")}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def layer_of(path: str) -> str | None:
    """The layer that owns a path below src/, by its longest declared prefix."""
    parts = path.split("/")
    for length in (2, 1):
        name = "/".join(parts[:length])
        if len(parts) > length and name in ARROWS:
            return name
    return None


def main() -> int:
    problems = []
    checked = 0
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        layer = layer_of(str(path.relative_to(ROOT / "src")))
        if layer is None:
            problems.append(f"{path.relative_to(ROOT)}: lies in no declared layer")
            continue
        checked += 1
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match or match[1].startswith("inflight/"):
                continue
            target = layer_of(match[1])
            name = str(path.relative_to(ROOT))
            if target is None or target in {layer, "base"} or target in ARROWS[layer]:
                continue
            if (name, target) not in EXCEPTIONS:
                problems.append(f"{name}:{number}: {layer} may not include {target} ({match[1]})")
    print("\n".join(problems) if problems else f"layers: {checked} files, no forbidden include")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
