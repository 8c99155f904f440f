#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes seeds/quantized/: a description of each format with the tensors of one module.

pip install numpy && python3 tests/fuzz/make_quantized_seeds.py
"""

import json
import pathlib
import shutil

import numpy as np

SEEDS = pathlib.Path(__file__).parent / "seeds/quantized"
DTYPES = {"F32": np.float32, "I32": np.int32, "I64": np.int64, "I8": np.int8, "F8_E4M3": np.uint8}


def write(name, description, **tensors):
    """Tensors are (dtype, shape) filled with small numbers, or (dtype, list)."""
    header, data = {}, b""
    for tensor, (dtype, values) in tensors.items():
        if isinstance(values, tuple):
            values = np.arange(1, np.prod(values) + 1).reshape(values)
        array = np.array(values, DTYPES[dtype])
        span = [len(data), len(data) + array.nbytes]
        header[f"m.{tensor}"] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": span}
        data += array.tobytes()
    text = json.dumps(header).encode()
    file = len(text).to_bytes(8, "little") + text + data
    (SEEDS / name).write_bytes(json.dumps(description).encode() + b"\0" + file)


def compressed(layout, **weights):
    group = {"targets": ["Linear", "re:m.*"], "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"a": group},
        "ignore": ["lm_head", "re:.*gate$"],
    }


def main():
    shutil.rmtree(SEEDS, ignore_errors=True)
    SEEDS.mkdir(parents=True)
    awq = {"quant_method": "awq", "bits": 4, "group_size": 2, "modules_to_not_convert": ["lm_head"]}
    write("awq", awq, qweight=("I32", (4, 2)), qzeros=("I32", (2, 2)), scales=("F32", (2, 16)))
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 4, "desc_act": True}
    order = ("I32", [0, 1, 0, 1, 0, 1, 0, 1])
    write("gptq", gptq, qweight=("I32", (1, 8)), qzeros=("I32", (2, 1)), scales=("F32", (2, 8)), g_idx=order)
    gptq = {"quant_method": "gptq", "bits": 8, "group_size": -1, "checkpoint_format": "gptq_v2"}
    write("gptq8", gptq, qweight=("I32", (2, 8)), qzeros=("I32", (1, 2)), scales=("F32", (1, 8)))
    packed = compressed("pack-quantized", num_bits=4, symmetric=False, strategy="group", group_size=4)
    write(
        "packed",
        packed,
        weight_packed=("I32", (2, 1)),
        weight_scale=("F32", (2, 2)),
        weight_shape=("I64", [2, 8]),
        weight_zero_point=("I32", (1, 2)),
        weight_g_idx=order,
    )
    channel = compressed("pack-quantized", num_bits=4, strategy="channel")
    write(
        "packed_channel",
        channel,
        weight_packed=("I32", (2, 1)),
        weight_scale=("F32", (2, 1)),
        weight_shape=("I64", [2, 8]),
    )
    int8 = compressed("int-quantized", num_bits=8, strategy="tensor", symmetric=False)
    write("int8", int8, weight=("I8", (2, 6)), weight_scale=("F32", [0.5]), weight_zero_point=("I8", [3]))
    blocks = {"quant_method": "fp8", "weight_block_size": [2, 4]}
    write("fp8_blocks", blocks, weight=("F8_E4M3", (3, 6)), weight_scale_inv=("F32", (2, 2)))
    modelopt = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head*"]}}
    fp8 = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    write(
        "upstream_fp8", fp8, weight=("I8", (3, 6)), weights_scaling_factor=("F32", [0.5]), activation_scaling_factor=("F32", [2])
    )
    upstream_awq = {"quant_algo": "W4A16_AWQ", "group_size": 16, "pre_quant_scale": True}
    factors = {"prequant_scaling_factor": ("F32", (32,))}
    write("upstream_awq", upstream_awq, weight=("I8", (2, 32)), weights_scaling_factor=("F32", (4, 2)), **factors)
    write("upstream_awq_plain", upstream_awq, weight=("I8", (2, 32)), weights_scaling_factor=("F32", (4, 2)))
    zeros = {"quant_algo": "W4A16_AWQ", "has_zero_point": True}
    two_rows = {"weights_scaling_factor": ("F32", [[1, 2], [3, 4]]), "zero": ("F32", [[7, -24], [0, 4]])}
    write("upstream_awq_zeros", zeros, weight=("I8", (1, 32)), **two_rows)
    experts = {"weights_scaling_factor": ("F32", [[[1], [2]], [[3], [4]]]), "zero": ("F32", [[[7, -16]], [[0, 4]]])}
    write("upstream_awq_experts", zeros, weight=("I8", (2, 1, 16)), **experts)
    write("upstream_fp8_experts", fp8, weight=("F8_E4M3", (2, 3, 6)), weights_scaling_factor=("F32", [[0.5], [2]]))
    smooth = {"quant_algo": "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN"}
    write("upstream_smoothquant", smooth, weight=("I8", (2, 6)), per_channel_scale=("F32", (1, 2)), smoother=("F32", (1, 6)))
    write("modelopt", modelopt, weight=("F8_E4M3", (3, 6)), weight_scale=("F32", 0.5), input_scale=("F32", 0.5))


if __name__ == "__main__":
    main()
