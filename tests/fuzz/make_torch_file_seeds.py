#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes seeds/torch_file/ from the files of tests/golden/torch and from pickles that do harm where they are run.

    python3 tests/fuzz/make_torch_file_seeds.py      needs Python alone

A seed that begins with P or 0x80 is a file; others are a byte 'z', the size of a storage, and a pickle around which the
fuzzer puts a zip file.
"""

import os
import pathlib
import shutil
import sys
import zipfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tools"))
from torch_writer import Storage, Tensor, dumps  # noqa: E402

DATA = HERE.parent / "golden/torch/data"
SEEDS = HERE / "seeds/torch_file"


class Calls:
    def __reduce__(self):
        return os.system, ("true",)


def main():
    shutil.rmtree(SEEDS, ignore_errors=True)
    SEEDS.mkdir()
    for name in ("zip", "zip_protocol4", "legacy", "legacy_protocol4"):
        (SEEDS / name).write_bytes((DATA / f"forms/{name}.bin").read_bytes())
    (SEEDS / "shard").write_bytes((DATA / "llama/sharded/pytorch_model-00003-of-00006.bin").read_bytes())
    pickles = {}
    for name in ("expanded", "module", "six_dimensions", "sparse", "training"):
        with zipfile.ZipFile(DATA / f"refused/{name}.bin") as archive:
            pickles[name] = archive.read(f"{name}/data.pkl")
    with zipfile.ZipFile(DATA / "forms/zip_protocol4.bin") as archive:
        pickles["forms"] = archive.read("zip_protocol4/data.pkl")
    floats, bytes_ = Storage("0", "FloatStorage", 10), Storage("1", "ByteStorage", 20)
    tensors = {"w": Tensor(floats, (2, 5)), "t": Tensor(floats, (5, 2), (1, 5)), "b": Tensor(bytes_, (3,), (4,), 7)}
    pickles["tensors"] = dumps(tensors)
    pickles["tensors4"] = dumps(tensors, 4)
    pickles["reduce"] = dumps({"w": Calls()})
    pickles["stack_global"] = dumps({"w": Calls()}, 4)
    for name, pickled in pickles.items():
        (SEEDS / f"in_zip_{name}").write_bytes(b"z\x28" + pickled)


if __name__ == "__main__":
    main()
