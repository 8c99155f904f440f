# SPDX-License-Identifier: Apache-2.0
"""Every family under every method of published directories that `inflight families` says it has: packed weights are the
numbers of plain ones, the CPU runs the model as it is opened, and it is built for a GPU."""

import packed_models
import pytest
from command import run
from test_gguf import greedy

CASES = [{"prompt": [1, 5, 9, 30], "greedy": [0] * 3}]
CELLS = [
    (method["name"], family["architecture"])
    for family in packed_models.TABLE["families"]
    for method in packed_models.TABLE["formats"]
    if method["field"] == "quant_method" and method["name"] not in family["refused"]["cpu"]
]


def checkpoint(model, out):
    run("convert", "--model-dir", model, "--output-dir", out, "--dtype", "float32", "--quant-algo", "none")
    return (out / "rank0.safetensors").read_bytes(), (out / "config.json").read_text()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A function from a family to its model of plain weights, as a checkpoint."""
    made = {}

    def of_family(architecture):
        if architecture not in made:
            work = tmp_path_factory.mktemp("plain")
            model = packed_models.write(packed_models.whole_model_of(architecture), work / "hf")
            made[architecture] = checkpoint(model, work / "checkpoint")
        return made[architecture]

    return of_family


@pytest.mark.parametrize(("method", "architecture"), CELLS)
def test_packed_weights_are_those_of_the_plain_model(method, architecture, plain, tmp_path):
    model = packed_models.write(packed_models.whole_model_of(architecture), tmp_path / "hf", method)
    assert checkpoint(model, tmp_path / "checkpoint") == plain(architecture)
    assert len(greedy(model, CASES)[0]) == 3
    run("build", "--dry-run", "--checkpoint-dir", model, "--output-dir", tmp_path / "engine", "--target", "cuda")
