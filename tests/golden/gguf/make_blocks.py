#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes blocks/: random blocks of each packed type and what gguf.quants.dequantize makes of them.

    pip install gguf==0.19.0 numpy && python3 tests/golden/gguf/make_blocks.py

NAME.bin holds the blocks, NAME.f32 the float32 values of all their elements. Every byte is random but the float16 scales,
which are finite: a normal number, a subnormal one, zero or a negative one in turn.
"""

import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent / "blocks"
# Where the float16 numbers of a block lie.
SCALES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "MXFP4": [],
}


def main():
    HERE.mkdir(exist_ok=True)
    rng = np.random.default_rng(28)
    for name, places in SCALES.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, num_bytes = gguf.GGML_QUANT_SIZES[kind]
        count = 12 if elements == 32 else 4
        blocks = rng.integers(0, 256, (count, num_bytes), dtype=np.uint8)
        for place in places:
            scales = (rng.standard_normal(count) * 0.02).astype(np.float16)
            scales[1::4] = np.float16(3e-6)
            scales[2::4] = 0
            blocks[:, place : place + 2] = scales.view(np.uint8).reshape(count, 2)
        if name == "MXFP4":
            # Exponents below and at the ends of float32's normal range; 12 times a larger one is infinite.
            blocks[:, 0] = np.concatenate([[0, 1, 2, 252], rng.integers(100, 150, count - 4)])
        values = gguf.quants.dequantize(blocks, kind)
        assert np.isfinite(values).all(), name
        (HERE / f"{name}.bin").write_bytes(blocks.tobytes())
        (HERE / f"{name}.f32").write_bytes(values.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
