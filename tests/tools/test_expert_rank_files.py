# SPDX-License-Identifier: Apache-2.0
"""Ranks that hold different experts: the options of all commands, what they write, and answers as of transformers."""

import json

import pytest
from command import error, run
from test_gguf import GOLDEN, golden, greedy

MODEL = GOLDEN / "mixtral_experts"  # four heads, four experts of width 128


@pytest.fixture(scope="module")
def cases():
    return [{"prompt": case["prompt"], "greedy": case["greedy"][:32]} for case in golden("mixtral_experts")]


def mapping(directory):
    config = json.loads((directory / "config.json").read_text())
    return config.get("pretrained_config", config)["mapping"]


@pytest.mark.parametrize(
    ("flags", "sizes"),
    [
        (["--tp_size", 2, "--moe_ep_size", 2], (1, 2)),
        (["--tp-size", 4, "--moe-tp-size", 2], (2, 2)),
        (["--tp_size", 4, "--moe_tp_size", 1, "--moe_ep_size", 4], (1, 4)),
        (["--tp_size", 4, "--moe_tp_mode", 1], (1, 4)),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_a_model_is_converted_built_and_run(flags, sizes, cases, tmp_path):
    expected = [case["greedy"] for case in cases]
    run("convert", "--model_dir", MODEL, "--output_dir", tmp_path / "ckpt", "--dtype", "float32", *flags)
    run("build", "--checkpoint_dir", tmp_path / "ckpt", "--output_dir", tmp_path / "engine")
    run("build", "--checkpoint_dir", tmp_path / "ckpt", "--output_dir", tmp_path / "merged", "--merge_ranks")
    for directory in (tmp_path / "ckpt", tmp_path / "engine"):
        assert (mapping(directory)["moe_tp_size"], mapping(directory)["moe_ep_size"]) == sizes
        text = run("inspect", directory).stdout
        assert f"of experts: tensor parallel {sizes[0]}, expert parallel {sizes[1]}" in text
        report = json.loads(run("inspect", directory, "--json").stdout)
        assert (report["moe_tp_size"], report["moe_ep_size"]) == sizes
    assert "moe_ep_size" not in mapping(tmp_path / "merged")
    for directory in (tmp_path / "ckpt", tmp_path / "engine", tmp_path / "merged"):
        assert greedy(directory, cases) == expected, directory.name


@pytest.mark.parametrize("sizes", [(2, 2), (4, 4), (4, 2)])
def test_a_model_runs_on_ranks_as_it_is(sizes, cases):
    ranks = ["--tensor-parallel-size", sizes[0], "--moe-ep-size", sizes[1]]
    assert greedy(MODEL, cases, *ranks) == [case["greedy"] for case in cases]
    assert f"ranks      {sizes[0]}, in all" in run("inspect", MODEL, *ranks).stdout


def test_an_engine_is_built_of_the_model_itself(cases, tmp_path):
    run("build", "--checkpoint-dir", MODEL, "--output-dir", tmp_path / "engine", "--tp-size", 2, "--moe-ep-size", 2)
    assert mapping(tmp_path / "engine")["moe_ep_size"] == 2
    said = error("run", tmp_path / "engine", "--moe-ep-size", 1, "--prompt", "x")
    assert f"moe_ep_size: got 1, {tmp_path / 'engine'} is an engine for 2; leave it out" in said
    assert greedy(tmp_path / "engine", cases, "--moe-tp-size", 1) == [case["greedy"] for case in cases]


def test_sizes_that_do_not_fit_are_refused_by_name():
    def refused(*flags, model=MODEL):
        return error("inspect", model, *flags)

    assert "moe_ep_size: got 2, it has to divide the tensor-parallel ranks, which are 1" in refused("--moe-ep-size", 2)
    assert "moe_tp_size: got 3, it has to divide" in refused("--tensor-parallel-size", 2, "--moe-tp-size", 3)
    assert "--moe-ep-size: got '-2'" in refused("--moe-ep-size", -2)
    said = refused("--tensor-parallel-size", 4, "--moe-ep-size", 4, model=GOLDEN / "mixtral_window")
    assert "moe_ep_size: got 4, the model has 5 experts" in said
    said = refused("--tensor-parallel-size", 2, "--moe-ep-size", 2, model=GOLDEN / "llama_gqa2")
    assert "moe_ep_size: got 2, LlamaForCausalLM has no experts; leave it out" in said
