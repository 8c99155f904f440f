# SPDX-License-Identifier: Apache-2.0
"""What a safetensors file holds, read and written without any library of the project."""

import json
import struct

from command import DEMO


def header(path):
    """{name: dtype, shape, data_offsets}, and the bytes that the offsets are of."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write(path, tensors):
    """A file of {name: (dtype, shape, bytes)}."""
    named, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        named[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(named).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def demo_rows(name):
    """A function from row to floats, of a bfloat16 matrix of the demo model."""
    tensors, values = header(DEMO / "model.safetensors")
    stored = tensors[name]
    assert stored["dtype"] == "BF16"
    size = stored["shape"][1] * 2

    def row_of(row):
        begin = stored["data_offsets"][0] + row * size
        return [struct.unpack("<f", b"\0\0" + values[i : i + 2])[0] for i in range(begin, begin + size, 2)]

    return row_of
