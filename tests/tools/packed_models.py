# SPDX-License-Identifier: Apache-2.0
"""Golden models whose matrices are codes from -4 to 4 times one scale, plain or packed as each method of published directories
packs them (src/quantized/). Every method holds these numbers exactly, so that all of them stand for the same model."""

import functools
import json
import re

import gguf_models
import numpy as np
import safetensors_rows
from command import ROOT, run

GOLDEN = ROOT / "tests/golden/data"
TABLE = json.loads(run("families").stdout)
SCALE = 2.0**-6
GROUP = 16
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
DTYPES = {"int32": "I32", "int8": "I8", "uint8": "U8", "float16": "F16", "float32": "F32"}
E4M3 = {0: 0x00, 1: 0x38, 2: 0x40, 3: 0x44, 4: 0x48}
E2M1 = {0: 0, 1: 2, 2: 4, 3: 5, 4: 6}
MX_BLOCK = 32
MX_SCALE = 121  # SCALE's exponent plus 127


def models_of(architecture):
    """Directories of golden models of a family, by name."""
    family = next(row for row in TABLE["families"] if row["architecture"] == architecture)
    names = {architecture, *family["composites"]}
    for directory in sorted(GOLDEN.iterdir()):
        if names & set(json.loads((directory / "config.json").read_text())["architectures"]):
            yield directory


def is_linear(name, values):
    """Of a layer, and no router, which stays plain in published directories."""
    is_router = re.search(r"(\.gate|router|router\.layer|shared_expert_gate)\.weight$", name)
    return values.ndim == 2 and name.endswith(".weight") and re.search(r"(^|\.)(layers|h)\.\d+\.", name) and not is_router


def is_stacked(name, values):
    """The matrices of all experts of a layer."""
    return values.ndim == 3 and not name.endswith("_bias")


@functools.cache
def whole_model_of(architecture):
    """A golden model of the family whose matrices are plain, in one file, and of whole groups."""
    for directory in models_of(architecture):
        if not (directory / "model.safetensors").exists():  # in several files
            continue
        tensors = gguf_models.weights(directory)
        if any(values.dtype == np.uint8 for values in tensors.values()):
            continue
        if all(extent % GROUP == 0 for name, values in tensors.items() if is_linear(name, values) for extent in values.shape):
            return directory
    raise LookupError(architecture)


def by_table(codes, table, sign):
    """The bits of small integers, in a format whose bit `sign` is the sign."""
    magnitudes = np.array([table[i] for i in range(5)], np.uint8)
    return magnitudes[abs(codes)] | np.where(codes < 0, np.uint8(sign), np.uint8(0))


def words(codes, axis, order=(0, 1, 2, 3, 4, 5, 6, 7)):
    """Unsigned codes of four bits, eight in a word along the axis, the first in the low bits."""
    codes = np.moveaxis(codes, axis, -1).astype(np.uint32)
    parts = codes.reshape(*codes.shape[:-1], -1, 8)
    packed = np.bitwise_or.reduce([parts[..., place] << np.uint32(4 * i) for i, place in enumerate(order)])
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32)


# Each takes codes [out, in] and gives the tensors of a module.


def awq(codes):
    groups = (codes.shape[1] // GROUP, codes.shape[0])
    zeros = words(np.full(groups, 8), 1, AWQ_ORDER)
    return {"qweight": words(codes.T + 8, 1, AWQ_ORDER), "qzeros": zeros, "scales": np.full(groups, SCALE, np.float16)}


def gptq(codes):
    groups = (codes.shape[1] // GROUP, codes.shape[0])
    stored = {"qweight": words(codes.T + 8, 0), "qzeros": words(np.full(groups, 7), 1)}  # one less than the zero points
    return stored | {"scales": np.full(groups, SCALE, np.float16)}


def int8(codes):
    return {"weight": codes.astype(np.int8), "weight_scale": np.full((codes.shape[0], 1), SCALE, np.float32)}


def fp8(codes):
    return {"weight": ("F8_E4M3", by_table(codes, E4M3, 0x80)), "weight_scale": np.full(1, SCALE, np.float32)}


COMPRESSED = {
    "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
    "config_groups": {"group_0": {
        "targets": ["Linear"], "input_activations": None, "output_activations": None,
        "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}}},
}  # fmt: skip
# {method: its configuration, and what packs the matrices of a layer; of MXFP4 those of experts alone}
METHODS = {
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}, awq),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False}, gptq),
    "compressed-tensors": (COMPRESSED, int8),
    "fp8": ({"quant_method": "fp8", "activation_scheme": "static"}, fp8),
    "modelopt": ({"quant_method": "modelopt", "quant_algo": "FP8"}, fp8),
    "mxfp4": ({"quant_method": "mxfp4"}, None),
}


def mxfp4(codes):
    """Of codes [num_experts, out, in]."""
    bits = by_table(codes, E2M1, 8)
    blocks = (bits[..., ::2] | bits[..., 1::2] << 4).reshape(*codes.shape[:2], -1, MX_BLOCK // 2)
    return {"blocks": blocks, "scales": np.full(blocks.shape[:3], MX_SCALE, np.uint8)}


def stored(values):
    dtype, values = values if isinstance(values, tuple) else (DTYPES[values.dtype.name], values)
    return dtype, list(values.shape), np.ascontiguousarray(values).tobytes()


def write(model, directory, method=None):
    """The model of a golden directory with such matrices, plain where no method is named; the same for each method."""
    directory.mkdir()
    config = json.loads((model / "config.json").read_text())
    rng = np.random.default_rng(3)
    quantization, pack = METHODS[method] if method else ({}, None)
    tensors = {}
    plain = gguf_models.weights(model)
    for name, values in plain.items():
        stem = name.removesuffix(".weight")
        if is_linear(name, values):
            codes = rng.integers(-4, 5, values.shape)
            of_module = {f"{stem}.{part}": packed for part, packed in pack(codes).items()} if pack else {}
            tensors |= of_module or {name: (codes * SCALE).astype(np.float32)}
        elif is_stacked(name, values):
            codes = rng.integers(-4, 5, values.shape)  # stored [in, out] where the name lacks ".weight"
            rows = codes if name.endswith(".weight") else codes.swapaxes(1, 2)
            of_module = {f"{stem}_{part}": packed for part, packed in mxfp4(rows).items()} if method == "mxfp4" else {}
            tensors |= of_module or {name: (codes * SCALE).astype(np.float32)}
        else:
            tensors[name] = values
    assert (tensors.keys() == plain.keys()) == (method is None)
    safetensors_rows.write(directory / "model.safetensors", {name: stored(values) for name, values in tensors.items()})
    if method:
        config["quantization_config"] = quantization
    (directory / "config.json").write_text(json.dumps(config))
    return directory
