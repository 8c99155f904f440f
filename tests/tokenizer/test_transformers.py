# SPDX-License-Identifier: Apache-2.0
"""A tokenizer.model under a transformers class: equal to what AutoTokenizer made of the same files.

data/transformers was made by make_transformers_data.py.
"""

import json
import pathlib

import pytest

DATA = pathlib.Path(__file__).parent / "data" / "transformers"
CASES = {case["name"]: case for case in json.loads((DATA / "cases.json").read_text())["cases"]}


def load(driver, folder, case, name="tokenizer.model"):
    (folder / name).write_bytes((DATA / f"{case['model']}.model").read_bytes())
    for file, content in case["files"].items():
        (folder / file).write_text(json.dumps(content))
    return driver.load(folder)


@pytest.mark.parametrize("name", CASES)
def test_ids_and_texts_equal_those_of_transformers(name, driver, tmp_path):
    case = CASES[name]
    reply = load(driver, tmp_path, case, "spiece.model" if case["model"] == "t5" else "tokenizer.model")
    assert "error" not in reply, reply
    for key in ("bos", "eos"):
        assert reply[f"{key}_id"] == case["special_ids"][f"{key}_token_id"]
    pad = case["special_ids"]["pad_token_id"]
    assert reply["pad_id"] == (reply["eos_id"] if pad is None else pad)
    for text in case["texts"]:
        assert driver.encode(text["text"], True) == text["ids"], text["text"]
        assert driver.encode(text["text"], False) == text["plain_ids"], text["text"]
        assert driver.decode(text["ids"], False) == text["decoded"], text["text"]
        assert driver.decode(text["ids"], True) == text["decoded_plain"], text["text"]
        pieces = driver.detokenize([[id] for id in text["ids"]], True)
        assert "".join(pieces) == text["decoded_plain"]


def test_other_classes_are_refused_by_name(driver, tmp_path):
    case = {**CASES["llama"], "files": {"tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer"}}}
    error = load(driver, tmp_path, case)["error"]
    assert "tokenizer_class" in error and "XLMRobertaTokenizer" in error and "LlamaTokenizer" in error


def test_gaps_between_ids_are_refused(driver, tmp_path):
    case = {**CASES["llama"], "files": {**CASES["llama"]["files"], "added_tokens.json": {"<pad>": 1000}}}
    error = load(driver, tmp_path, case)["error"]
    assert "added_tokens.json" in error and "<pad>" in error and "1000" in error


def test_checkpoint_and_engine_directories_are_llama_too(driver, tmp_path):
    for config in ({"architecture": "LlamaForCausalLM"}, {"pretrained_config": {"architecture": "LlamaForCausalLM"}}):
        load(driver, tmp_path, {**CASES["llama"], "files": {"config.json": config}})
        assert driver.encode("Hello", True)[0] == 1
    load(driver, tmp_path, {**CASES["llama"], "files": {"config.json": {}}})
    assert driver.encode("Hello", True)[0] != 1


def test_tokenizer_json_goes_before_tokenizer_model(driver, tmp_path):
    vocab = {"a": 0, "b": 1}
    content = {"version": "1.0", "model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert load(driver, tmp_path, CASES["llama"])["vocab_size"] == 2
