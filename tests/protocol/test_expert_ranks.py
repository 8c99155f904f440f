# SPDX-License-Identifier: Apache-2.0
"""Servers whose ranks hold different experts, threads and processes: transformers' ids."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
import tritonclient.http as http_client
from live_server import start_error
from rank_group import INFLIGHT, ranks

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/data"
MODEL = GOLDEN / "mixtral_experts"
NUM_TOKENS = 24


def stored(name):
    """An int64 tensor of the model's reference.safetensors."""
    data = (MODEL / "reference.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return np.frombuffer(data[8 + size + begin : 8 + size + end], np.int64).tolist()


def answer(url, prompt):
    values = {"input_ids": prompt, "input_lengths": [len(prompt)], "request_output_len": [NUM_TOKENS], "end_id": [-1]}
    inputs = []
    for name, numbers in values.items():
        inputs.append(http_client.InferInput(name, [1, len(numbers)], "INT32"))
        inputs[-1].set_data_from_numpy(np.array([numbers], np.int32))
    with http_client.InferenceServerClient(url) as client:
        result = client.infer("tensorrt_llm", inputs)
    return result.as_numpy("output_ids").reshape(-1)[-NUM_TOKENS:].tolist()


def expect_reference(url):
    for i in range(3):
        assert answer(url, stored(f"prompt_{i}")) == stored(f"greedy_{i}")[:NUM_TOKENS], i


@pytest.mark.parametrize(
    ("sizes", "flags"), [((2, 1), ["--enable-expert-parallel"]), ((4, 1), ["--moe-ep-size=2"])], ids=["whole", "halves"]
)
@pytest.mark.parametrize("as_processes", [True, False], ids=["processes", "threads"])
def test_ranks_with_experts_of_their_own_answer_as_transformers(tmp_path, sizes, flags, as_processes):
    count = None if as_processes else 1
    with ranks(tmp_path, sizes, *flags, model=MODEL, count=count) as group:
        expect_reference(group.url())


def test_processes_compute_an_engine_whose_ranks_have_experts_of_their_own(tmp_path):
    build = [INFLIGHT, "build", "--checkpoint-dir", MODEL, "--output-dir", tmp_path / "engine", "--dtype", "float32"]
    subprocess.run([*build, "--tp-size", "2", "--moe-ep-size", "2"], check=True, timeout=120)
    with ranks(tmp_path, (2, 1), model=tmp_path / "engine", says_sizes=False) as group:
        expect_reference(group.url())


def test_sizes_that_contradict_each_other_are_refused():
    serve = [INFLIGHT, "serve", MODEL, "--device=cpu", "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    said = start_error([*serve, "--tensor-parallel-size=4", "--enable-expert-parallel", "--moe-tp-size=2"])
    assert "--moe-tp-size: got 2, --enable-expert-parallel stands for 1; leave one of both out" in said
    said = start_error([*serve, "--tensor-parallel-size=4", "--enable-expert-parallel", "--moe-ep-size=2"])
    assert "moe_ep_size: got 2, beside moe_tp_size 1 of 4 tensor-parallel ranks it has to be 4" in said
