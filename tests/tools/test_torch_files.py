# SPDX-License-Identifier: Apache-2.0
"""pytorch_model.bin from outside: the roads that take it, and files made to do harm, each refused with a message that
names what was refused. Python's own pickle and zipfile write them."""

import builtins
import collections
import copyreg
import json
import os
import pathlib
import pickle
import struct
import subprocess
import tempfile
import zipfile

import pytest
import torch_writer
from command import ROOT, run
from torch_writer import Storage, Tensor, dumps, write_legacy, write_zip

TORCH_DATA = ROOT / "tests/golden/torch/data"
CONFIG = TORCH_DATA / "gpt2/zip/config.json"


@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_every_form_converts_and_builds_to_the_same_bytes_as_safetensors(model, tmp_path):
    weights = {}
    for form in ("safetensors", "zip", "sharded", "legacy"):
        source = TORCH_DATA / model / form
        run("convert", "--model-dir", source, "--output-dir", tmp_path / form / "ckpt", "--dtype", "float32")
        run("build", "--checkpoint-dir", source, "--output-dir", tmp_path / form / "engine")
        weights[form] = [(tmp_path / form / path).read_bytes() for path in ("ckpt/rank0.safetensors", "engine/rank0.engine")]
    assert weights["safetensors"] == weights["zip"] == weights["sharded"] == weights["legacy"]
    assert all(len(part) > 1000 for part in weights["zip"])


def test_run_and_inspect_take_it_like_safetensors(tmp_path):
    requests = tmp_path / "requests.jsonl"
    requests.write_text(json.dumps({"input_ids": [3, 5, 7], "max_tokens": 6, "end_id": -1, "return_log_probs": True}) + "\n")
    answers = {
        form: run("run", TORCH_DATA / "llama" / form, "--input", requests).stdout
        for form in ("safetensors", "zip", "sharded", "legacy")
    }
    assert len(set(answers.values())) == 1
    assert len(json.loads(answers["zip"])["output_ids"]) == 6
    assert "LlamaForCausalLM, bfloat16" in run("inspect", TORCH_DATA / "llama/zip").stdout


@pytest.fixture
def model(tmp_path):
    """A directory with a configuration."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_bytes(CONFIG.read_bytes())
    return tmp_path / "model"


def refused(model):
    """The message about model/pytorch_model.bin."""
    done = run("inspect", model, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "pytorch_model.bin" in done.stderr
    return done.stderr


class Calls:
    """Pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def exploits(path):
    """name -> (pickle, what the message names). Each makes `path` where Python runs it, or eats memory or time."""
    touch = f"touch {path}"
    write = f"open({str(path)!r}, 'w')"
    copyreg.add_extension("posix", "system", 77)
    try:
        extension = pickle.dumps(Calls(os.system, touch), 2)
    finally:
        copyreg.remove_extension("posix", "system", 77)
    arguments = text(touch) + b"\x85R."
    cases = {
        "reduce": (pickle.dumps(Calls(os.system, touch), 2), "global 'posix.system'"),
        "reduce_protocol0": (pickle.dumps(Calls(os.system, touch), 0), "global 'posix.system'"),
        "global_eval": (pickle.dumps(Calls(builtins.eval, write), 2), "global '__builtin__.eval'"),
        "stack_global": (pickle.dumps(Calls(builtins.exec, write), 4), "STACK_GLOBAL: global 'builtins.exec'"),
        "stack_global_memo": (
            b"\x80\x04" + text("os") + b"\x94" + text("system") + b"\x94" + b"00h\x00h\x01\x93" + arguments,
            "POP",
        ),
        "stack_global_of_memo": (
            b"\x80\x04]" + text("os") + b"\x94a]" + text("system") + b"\x94ah\x00h\x01\x93" + arguments,
            "global 'os.system'",
        ),
        "subprocess": (pickle.dumps(Calls(subprocess.check_call, ["touch", str(path)]), 4), "global 'subprocess.check_call'"),
        "getattr": (b"\x80\x02c__builtin__\ngetattr\n.", "global '__builtin__.getattr'"),
        "dotted_name": (b"\x80\x04" + text("torch") + text("os.system") + b"\x93" + arguments, "global 'torch.os.system'"),
        "dotted_utils": (b"\x80\x02ctorch._utils\nimportlib.import_module\n.", "global 'torch._utils.importlib.import_module'"),
        "torch_load": (b"\x80\x02ctorch\nload\n" + arguments, "global 'torch.load'"),
        "hub_load": (b"\x80\x02ctorch.hub\nload\n" + arguments, "global 'torch.hub.load'"),
        "inst": (f"(S'{touch}'\nios\nsystem\n.".encode(), "STRING"),
        "inst_unicode": (b"(" + text(touch) + b"ios\nsystem\n.", "INST"),
        "obj": (b"(cos\nsystem\n" + text(touch) + b"o.", "global 'os.system'"),
        "obj_of_allowed": (b"(ccollections\nOrderedDict\no.", "OBJ"),
        "newobj": (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "NEWOBJ"),
        "newobj_ex": (b"\x80\x04ccollections\nOrderedDict\n)}\x92.", "NEWOBJ_EX"),
        "extension": (extension, "EXT1"),
        "extension2": (b"\x80\x02\x83\x01\x01.", "EXT2"),
        "extension4": (b"\x80\x02\x84\x01\x01\x01\x01.", "EXT4"),
        "build_setstate": (
            b"\x80\x02ccollections\nOrderedDict\n)R}" + text("__setstate__") + b"Nsb.",
            "BUILD: attribute '__setstate__'",
        ),
        "build_class": (
            b"\x80\x02ccollections\nOrderedDict\n)R}(" + text("_metadata") + b"N" + text("__class__") + b"Nub.",
            "BUILD: 2 attributes",
        ),
        "build_of_class": (b"\x80\x02ccollections\nOrderedDict\n}" + text("update") + b"Nsb.", "BUILD: of a global"),
        "build_of_tensor_function": (
            b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}" + text("__code__") + b"Nsb.",
            "BUILD: of a global",
        ),
        "reduce_of_text": (b"\x80\x02" + text("os.system") + arguments, "call of a text"),
        "reduce_of_dict": (b"\x80\x02}" + arguments, "call of a dict"),
        "reduce_of_storage": (b"\x80\x02ctorch\nFloatStorage\n" + arguments, "call of a storage type"),
        "ordered_dict_of_items": (b"\x80\x02ccollections\nOrderedDict\n" + arguments, "call of OrderedDict with arguments"),
        "parameter_of_text": (b"\x80\x02ctorch._utils\n_rebuild_parameter\n" + arguments, "a tensor is needed"),
        "persid_text": (b"\x80\x02Pstorage\n.", "PERSID"),
        "persid_number": (b"\x80\x02K\x01Q.", "persistent id is a whole number"),
        "persid_call": (b"\x80\x02cos\nsystem\n" + text(touch) + b"\x85RQ.", "global 'os.system'"),
        "bytes": (pickle.dumps({"w": b"12"}, 4), "SHORT_BINBYTES"),
        "bytearray": (pickle.dumps({"w": bytearray(b"12")}, 5), "BYTEARRAY8"),
        "out_of_band": (b"\x80\x05\x97.", "NEXT_BUFFER"),
        "set": (pickle.dumps({1}, 4), "EMPTY_SET"),
        "duplicate": (b"\x80\x02]2.", "DUP"),
        "huge_text": (b"\x80\x04\x8d" + struct.pack("<Q", 2**63) + b"x.", "BINUNICODE8: truncated"),
        "huge_long": (b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"x.", "LONG4"),
        "memo_far": (b"\x80\x02}r\xff\xff\xff\xff0.", "POP"),
        "memo_absent": (b"\x80\x02j\xff\xff\xff\xff.", "nothing is kept as 4294967295"),
        "memo_bomb": (b"\x80\x04N" + b"\x94" * 4_200_000 + b".", "more than 4194304 values are kept"),
        "one_tuple_many_calls": (
            b"\x80\x02(" + b"N" * 100_000 + b"tq\x00" + b"(" + b"ctorch._utils\n_rebuild_tensor_v2\nh\x00R" * 100_000 + b"t\x86.",
            "holds a tuple",
        ),
        "marks": (b"\x80\x02" + b"(" * 5000 + b".", "more than 1000 marks"),
        "values": (b"\x80\x02(" + b"N" * 5_000_000 + b"t.", "more than 4194304 values"),
        "deep_lists": (b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".", "holds a list"),
        "deep_tuples": (b"\x80\x02)" + b"\x85" * 1_000_000 + b".", "holds a tuple"),
        "protocol_9": (b"\x80\x09N.", "PROTO: got 9"),
        "no_opcode": (b"\x80\x02\xfe.", "0xfe is no opcode"),
    }
    # Billion laughs: each list holds the one before twice; its text would have 2^60 items.
    laughs = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    cases["billion_laughs"] = (pickle.dumps(laughs, 2), "holds a list")
    cases["billion_laughs_value"] = (pickle.dumps({"w": laughs}, 4), "'w': is a list")
    return cases


PROOF = pathlib.Path(tempfile.mkdtemp()) / "executed"
EXPLOITS = exploits(PROOF)


@pytest.mark.parametrize("name", sorted(EXPLOITS))
def test_exploit_pickles_are_refused_by_name_in_both_forms(name, model):
    pickled, named = EXPLOITS[name]
    write_zip(model / "pytorch_model.bin", pickled)
    assert named in refused(model)
    write_legacy(model / "pytorch_model.bin", pickled)
    assert named in refused(model)
    (model / "pytorch_model.bin").write_bytes(pickled)  # a bare pickle
    refused(model)
    assert not PROOF.exists()


def test_the_exploits_work_where_pickles_are_run(tmp_path):
    cases = exploits(tmp_path / "executed")
    for name in ("reduce", "global_eval", "stack_global", "inst_unicode", "subprocess"):
        pickle.loads(cases[name][0])
        assert (tmp_path / "executed").exists(), name
        (tmp_path / "executed").unlink()


FLOATS = Storage("0", "FloatStorage", 4)


@pytest.mark.parametrize(
    ("value", "storages", "named"),
    [
        (Tensor(FLOATS, (5,)), {"0": bytes(16)}, "shape [5] of strides [1] at offset 0 leaves storage '0', which has 4 elements"),
        (Tensor(FLOATS, (4,), offset=1), {"0": bytes(16)}, "at offset 1 leaves storage '0'"),
        (Tensor(FLOATS, (2,), (4,)), {"0": bytes(16)}, "leaves storage '0'"),
        (Tensor(FLOATS, (4,), offset=-1), {"0": bytes(16)}, "offset: got -1, a whole number of 0 or more is needed"),
        (Tensor(FLOATS, (2,), (-1,), offset=3), {"0": bytes(16)}, "strides: got -1, whole numbers of 0 or more are needed"),
        (Tensor(FLOATS, (-1,)), {"0": bytes(16)}, "shape: got -1, whole numbers of 0 or more are needed"),
        (Tensor(FLOATS, (2**62, 4), (0, 1)), {"0": bytes(16)}, "too large"),
        (Tensor(FLOATS, (2**62,), (2**62,)), {"0": bytes(16)}, "leaves storage '0'"),
        (Tensor(FLOATS, (2,), (1,), offset=2**63 - 1), {"0": bytes(16)}, "leaves storage '0'"),
        (Tensor(FLOATS, (10**9, 4), (0, 1)), {"0": bytes(16)}, "elements share memory"),
        (Tensor(FLOATS, (2**70,)), {"0": bytes(16)}, "shape: got a whole number beyond 64 bits"),
        (Tensor(FLOATS, (2, 2), (1,)), {"0": bytes(16)}, "differ in length"),
        (Tensor(FLOATS, (4,)), {}, "the file has no storage '0'"),
        (Tensor(FLOATS, (4,)), {"0": bytes(12)}, "takes other than the 12 bytes"),
        (Tensor(FLOATS, (4,)), {"0": bytes(20)}, "takes other than the 20 bytes"),
        (Tensor(FLOATS, (4,)), {"0": bytes(17)}, "takes other than the 17 bytes"),
        (Tensor(Storage("0", "FloatStorage", 2**62), (4,)), {"0": bytes(16)}, "takes other than the 16 bytes"),
        (
            Tensor(Storage("0", "FloatStorage", -4), (4,)),
            {"0": bytes(16)},
            "storage: elements: got -4, a whole number of 0 or more",
        ),
        (Tensor(Storage("../../etc/passwd", "FloatStorage", 4), (4,)), {"0": bytes(16)}, "no storage '../../etc/passwd'"),
        (Tensor(Storage("0", "ComplexFloatStorage", 2), (2,)), {"0": bytes(16)}, "global 'torch.ComplexFloatStorage'"),
        (Tensor(Storage("0", "text", 4), (4,)), {"0": bytes(16)}, "storage: type: got a text"),
        (Tensor(Storage(0, "FloatStorage", 4), (4,)), {"0": bytes(16)}, "storage: key: got a whole number"),
        (Tensor(Storage("0", "FloatStorage", 4, tag="module"), (4,)), {"0": bytes(16)}, "persistent id of 'module'"),
        (Tensor(Storage("0", "FloatStorage", 4, extra=(("v", 0, 4),)), (4,)), {"0": bytes(16)}, "is a view of another storage"),
        (Tensor(Storage("0", "FloatStorage", 4, extra=(None, None)), (4,)), {"0": bytes(16)}, "persistent id of 7 members"),
        (Tensor(FLOATS, (4,), arguments=(1, 2)), {}, "_rebuild_tensor_v2: 2 arguments"),
        (Tensor(FLOATS, (4,), arguments=(1, 0, (4,), (1,), False, collections.OrderedDict())), {}, "storage: got a whole number"),
        (
            Tensor(FLOATS, (4,), arguments=(FLOATS, 0, (4,), (1,), False, collections.OrderedDict(a=1))),
            {"0": bytes(16)},
            "backward_hooks",
        ),
        (FLOATS, {"0": bytes(16)}, "'w': is a storage, a tensor is needed"),
    ],
)
def test_tensors_that_break_their_bounds_are_refused(value, storages, named, model):
    write_zip(model / "pytorch_model.bin", dumps({"w": value}), storages)
    assert named in refused(model)


def test_views_cannot_add_up_to_more_than_the_file(model):
    storage = Storage("0", "FloatStorage", 10_000)
    write_zip(
        model / "pytorch_model.bin",
        dumps({f"w{i}": Tensor(storage, (100, 100), (1, 100)) for i in range(3)}),
        {"0": bytes(40_000)},
    )
    assert "'w1': views of the same storages add up to more bytes than the file has" in refused(model)


def test_a_name_cannot_come_twice(model):
    tensor = dumps(Tensor(FLOATS, (4,)))[2:-1]
    write_zip(model / "pytorch_model.bin", b"\x80\x02}(" + 2 * (text("w") + tensor) + b"u.", {"0": bytes(16)})
    assert "'w' comes twice" in refused(model)


def good_zip(path, **options):
    write_zip(path, dumps({"w": Tensor(FLOATS, (4,))}), {"0": bytes(16)}, **options)


def directory_offset(data):
    return struct.unpack_from("<I", data, len(data) - 22 + 16)[0]


def patched(data, signature, index, offset, form, value):
    """`data` with one field of the index-th record of that signature replaced."""
    at = -1
    for _ in range(index + 1):
        at = data.index(signature, at + 1)
    out = bytearray(data)
    struct.pack_into(form, out, at + offset, value)
    return bytes(out)


CENTRAL, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: patched(d, CENTRAL, 1, 24, "<I", 999), "stored as 16 bytes, but has 999"),
        (lambda d: patched(patched(d, CENTRAL, 1, 24, "<I", 999), CENTRAL, 1, 20, "<I", 999), "do not fit before the directory"),
        (lambda d: patched(patched(d, CENTRAL, 1, 24, "<I", 8), CENTRAL, 1, 20, "<I", 8), "contradicts the directory"),
        (lambda d: patched(d, CENTRAL, 1, 42, "<I", 0), "its local header has another name, 'archive/data.pkl'"),
        (lambda d: patched(d, CENTRAL, 1, 42, "<I", 3), "no local header at byte 3"),
        (lambda d: patched(d, CENTRAL, 1, 42, "<I", 2**31), "no local header at byte 2147483648"),
        (lambda d: patched(d, CENTRAL, 1, 10, "<H", 8), "is compressed (method 8)"),
        (lambda d: patched(d, LOCAL, 1, 8, "<H", 8), "contradicts the directory"),
        (lambda d: patched(d, CENTRAL, 1, 8, "<H", 1), "is encrypted"),
        (lambda d: patched(d, CENTRAL, 1, 34, "<H", 1), "lies on another disk"),
        (lambda d: patched(d, CENTRAL, 1, 28, "<H", 60000), "a record leaves it"),
        (lambda d: patched(d, END, 0, 10, "<H", 3), "no record where one was expected"),
        (lambda d: patched(d, END, 0, 10, "<H", 1), "after its 1 entries"),
        (lambda d: patched(d, END, 0, 4, "<H", 1), "several disks"),
        (lambda d: patched(d, END, 0, 16, "<I", 5), "its end record stands at byte"),
        (lambda d: patched(d, END, 0, 12, "<I", 2**32 - 1), "its end record stands at byte"),
        (lambda d: d + b"tail", "truncated: no zip end record"),
        (lambda d: d[:-1], "truncated: no zip end record"),
    ],
)
def test_zip_files_that_readers_would_understand_differently_are_refused(change, named, model):
    good_zip(model / "good.bin")
    (model / "pytorch_model.bin").write_bytes(change((model / "good.bin").read_bytes()))
    assert named in refused(model)


def test_zip_entries_must_be_stored_once_within_the_archive(model):
    path = model / "pytorch_model.bin"
    good_zip(path, compression=zipfile.ZIP_DEFLATED)
    assert "is compressed (method 8); torch.save stores" in refused(model)
    with pytest.warns(UserWarning, match="Duplicate name"):
        good_zip(path, entries=[("archive/data/0", bytes(16))])
    assert "zip entry 'archive/data/0': comes twice" in refused(model)
    for name in ("../evil", "/etc/passwd", "archive/../../evil", "archive\\..\\evil"):
        good_zip(path, entries=[(name, b"x")])
        assert f"zip entry {name!r}: a name within the archive is needed".replace("\\\\", "\\") in refused(model)


def test_zip_entries_cannot_share_bytes(model):
    # A whole local header inside the data of another entry, with a directory record of its own.
    inner = struct.pack("<IHHHIIIIHH", 0x04034B50, 0, 0, 0, 0, 0, 4, 4, 14, 0) + b"archive/data/1" + b"1234"
    good_zip(model / "good.bin", entries=[("archive/data/2", inner), ("archive/data/1", b"1234")])
    data = (model / "good.bin").read_bytes()
    at = data.index(inner)
    (model / "pytorch_model.bin").write_bytes(patched(data, CENTRAL, 3, 42, "<I", at))
    assert "zip entry 'archive/data/1': overlaps entry 'archive/data/2'" in refused(model)


def test_the_writer_of_these_tests_writes_what_is_read(model):
    """Else every refusal above could be one of the writer."""
    for write in (good_zip, lambda path: write_legacy(path, dumps({"w": Tensor(FLOATS, (4,))}), {"0": (4, bytes(16))})):
        write(model / "pytorch_model.bin")
        message = run("inspect", model, check=False).stderr
        assert "Required but not provided tensors" in message and "transformer.wte.weight" in message


def test_an_index_names_torch_files_of_its_directory_only(model):
    (model / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"w": "../evil.bin"}}))
    done = run("inspect", model, check=False)
    assert done.returncode == 1
    assert "the name of a file in the same directory is needed" in done.stderr


def test_stand_ins_are_written_as_torch_names_them():
    assert b"ctorch\nFloatStorage\n" in dumps({"w": Tensor(FLOATS, (4,))})
    assert torch_writer.STORAGE_TYPES["FloatStorage"].__module__ == "torch"
