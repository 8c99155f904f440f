# SPDX-License-Identifier: Apache-2.0
"""The demo model with its vocabulary as a file of tiktoken's ranks: each command finds it, and says what it said before."""

import base64
import json
import shutil

import pytest
from command import DEMO, run

PLACES = ("demo.tiktoken", "tokenizer.model", "tiktoken/tokenizer.model", "original/tokenizer.model")
TEXTS = "Once upon a time, there were 12 cats.\nIt's <|eot_id|> here!\n"


def bytes_of(token):
    """The bytes that a token of tokenizer.json spells in GPT-2's byte alphabet."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return bytes(ord(c) if ord(c) in printable else others[ord(c) - 256] for c in token)


@pytest.fixture(params=PLACES)
def model(request, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(DEMO, folder)
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    (folder / request.param).parent.mkdir(exist_ok=True)
    (folder / request.param).write_bytes(
        b"".join(base64.b64encode(bytes_of(token)) + b" %d\n" % id for token, id in vocab.items())
    )
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"encoding_name": "qwen", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def said(folder):
    """What commands say of a model, but for its folder."""
    answer = run("run", folder, "--prompt", "Once upon a time", "--max-tokens", 16).stdout
    return run("tokenize", folder, input=TEXTS).stdout, answer


def test_commands_read_it_in_each_place(model, tmp_path):
    expected = said(DEMO)
    assert "2048 tokens" in run("inspect", model).stdout
    assert said(model) == expected
    run("convert", "--model-dir", model, "--output-dir", tmp_path / "ckpt", "--dtype", "float32")
    run("build", "--checkpoint-dir", tmp_path / "ckpt", "--output-dir", tmp_path / "engine")
    assert said(tmp_path / "engine")[0] == expected[0]
    run("build", "--checkpoint-dir", DEMO, "--tokenizer-dir", model, "--output-dir", tmp_path / "other")
    assert said(tmp_path / "other")[0] == expected[0]
    assert not (tmp_path / "other/tokenizer.json").exists()


def test_what_is_not_decided_is_said(model):
    settings = json.loads((model / "tokenizer_config.json").read_text())
    del settings["encoding_name"]
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    done = run("run", model, "--prompt", "x", check=False)
    assert done.returncode == 1
    assert "set encoding_name in tokenizer_config.json to one of gpt2" in done.stderr
