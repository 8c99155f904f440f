# SPDX-License-Identifier: Apache-2.0
"""Writes files of torch.save's layout without torch, also ones that nobody should open."""

import collections
import io
import pickle
import struct
import sys
import types
import unittest.mock
import zipfile

STAND_INS = {name: types.ModuleType(name) for name in ("torch", "torch._utils")}


def _stand_in(module, name):
    """Something that the pickler writes as GLOBAL `module`.`name`."""
    thing = type(name, (), {"__module__": module, "__qualname__": name})
    setattr(STAND_INS[module], name, thing)
    return thing


STORAGE_TYPES = {
    name: _stand_in("torch", name)
    for name in (
        "FloatStorage",
        "HalfStorage",
        "BFloat16Storage",
        "DoubleStorage",
        "LongStorage",
        "ByteStorage",
        "BoolStorage",
        "ComplexFloatStorage",
    )
}
REBUILD_TENSOR = _stand_in("torch._utils", "_rebuild_tensor_v2")


class Storage:
    """Bytes of one storage; pickled as the persistent id that torch writes."""

    def __init__(self, key, kind, num_elements, *, location="cpu", tag="storage", extra=()):
        self.key, self.kind, self.num_elements = key, kind, num_elements
        self.location, self.tag, self.extra = location, tag, extra


class Tensor:
    """Pickled as a call of torch._utils._rebuild_tensor_v2."""

    def __init__(self, storage, shape, strides=None, offset=0, *, arguments=None):
        if strides is None:
            strides, product = [], 1
            for dim in reversed(shape):
                strides.insert(0, product)
                product *= dim
            strides = tuple(strides)
        hooks = collections.OrderedDict()
        self.arguments = arguments or (storage, offset, tuple(shape), strides, False, hooks)

    def __reduce__(self):
        return REBUILD_TENSOR, self.arguments


class Pickler(pickle.Pickler):
    def persistent_id(self, thing):
        if isinstance(thing, Storage):
            return (
                thing.tag,
                STORAGE_TYPES.get(thing.kind, thing.kind),
                thing.key,
                thing.location,
                thing.num_elements,
                *thing.extra,
            )
        return None


def dumps(value, protocol=2):
    out = io.BytesIO()
    with unittest.mock.patch.dict(sys.modules, STAND_INS):  # the pickler imports what it names
        Pickler(out, protocol).dump(value)
    return out.getvalue()


def write_zip(path, pickled, storages=(), *, folder="archive", compression=zipfile.ZIP_STORED, entries=()):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr(f"{folder}/data.pkl", pickled)
        for key, data in dict(storages).items():
            archive.writestr(f"{folder}/data/{key}", data)
        for name, data in entries:
            archive.writestr(name, data)


def write_legacy(path, pickled, storages=()):
    """`storages`: key -> (num_elements, bytes)."""
    header = b"".join(
        pickle.dumps(value, 2)
        for value in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}})
    )
    keys = pickle.dumps(list(dict(storages)), 2)
    data = b"".join(struct.pack("<q", num) + content for num, content in dict(storages).values())
    path.write_bytes(header + pickled + keys + data)
