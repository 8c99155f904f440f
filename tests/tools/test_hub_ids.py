# SPDX-License-Identifier: Apache-2.0
"""Hub ids in place of model directories: found in a made cache, or refused with the place and the remedy."""

import pytest
from command import ROOT, run
from hub_stand_in import without_hub

TORCH_DATA = ROOT / "tests/golden/torch/data"


@pytest.fixture
def hub(tmp_path):
    """A hub cache with the tiny Llama in it, and the environment that names it."""
    repo = tmp_path / "hf/hub/models--org--tiny"
    commit = "c" * 40
    (repo / "refs").mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "refs/main").write_text(commit)
    (repo / "snapshots" / commit).mkdir(parents=True)
    tokenizer = ROOT / "models/demo/tokenizer.json"
    for i, source in enumerate([*(TORCH_DATA / "llama/zip").iterdir(), tokenizer]):
        (repo / "blobs" / str(i)).write_bytes(source.read_bytes())
        (repo / "snapshots" / commit / source.name).symlink_to(f"../../blobs/{i}")
    return dict(without_hub(), HF_HOME=str(tmp_path / "hf"))


def test_commands_find_hub_ids_in_the_cache(hub, tmp_path):
    assert "LlamaForCausalLM" in run("inspect", "org/tiny", env=hub).stdout
    assert "LlamaForCausalLM" in run("inspect", "org/tiny@main", env=hub).stdout
    run("convert", "--model-dir", "org/tiny", "--output-dir", tmp_path / "ckpt", env=hub)
    assert (tmp_path / "ckpt/tokenizer.json").exists()
    run("build", "--checkpoint-dir", "org/tiny", "--output-dir", tmp_path / "engine", env=hub)
    requests = tmp_path / "requests.jsonl"
    requests.write_text('{"input_ids": [3, 5], "max_tokens": 2}\n')
    assert "output_ids" in run("run", "org/tiny", "--input", requests, env=hub).stdout
    assert run("tokenize", "org/tiny", env=hub, input="Once upon\n").stdout.strip()


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "org/other"],
        ["tokenize", "org/other"],
        ["run", "org/other", "--prompt", "x"],
        ["serve", "org/other"],
        ["convert", "--model-dir", "org/other", "--output-dir", "out"],
        ["build", "--checkpoint-dir", "org/other", "--output-dir", "out"],
    ],
)
def test_unknown_hub_ids_say_where_they_were_looked_for_and_what_to_do(arguments, hub, tmp_path):
    done = run(*arguments, check=False, env=hub, cwd=tmp_path)
    assert done.returncode == 1
    assert "org/other: no such directory" in done.stderr
    assert str(tmp_path / "hf/hub/models--org--other") in done.stderr
    assert "(HF_HOME)" in done.stderr and "`inflight pull org/other`" in done.stderr
