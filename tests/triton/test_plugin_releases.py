# SPDX-License-Identifier: Apache-2.0
"""Repositories of every release in NVIDIA's Triton server with our plug-in."""

import numpy as np
import pytest
import requests
import tritonclient.grpc as client_grpc
from live_server import start_server
from llm_client import Stream, token_ids
from real_triton import DEMO, FILL, make_repository, start_triton
from release_repositories import RELEASES, V1, write_repository
from test_plugin import REQUESTS, STORY, generate
from test_plugin_models import TEXT_MODELS

TOKENS = 8
UNSIGNED = ("request_output_len", "beam_width", "runtime_top_k", "min_length")  # up to 0.6


@pytest.fixture(scope="module")
def llms(tmp_path_factory):
    """The LLM of each release, under a name of its own."""
    path = tmp_path_factory.mktemp("releases")
    fill = FILL | {"max_tokens_in_paged_kv_cache": 1024}
    for release in RELEASES:
        write_repository(path / "models", release, f"_{release}", without=TEXT_MODELS, **fill)
    server = start_triton(path, path / "models")
    server.model_dir = DEMO
    yield server
    assert server.stop() == 0, server.log.read_text(errors="replace")[-4000:]


def llm_inputs(server, release, streaming):
    ids = token_ids(server, STORY)
    seed, least = ("random_seed", "min_length") if release < V1 else ("seed", "min_tokens")
    values = {
        "input_ids": ids, "input_lengths": [len(ids)], "request_output_len": [TOKENS], "beam_width": [1], "runtime_top_k": [1],
        "streaming": [streaming], seed: [7], least: [1],
    }  # fmt: skip
    types = {"streaming": (bool, "BOOL"), "random_seed": (np.uint64, "UINT64"), "seed": (np.uint64, "UINT64")}
    if release <= 6:
        types |= dict.fromkeys(UNSIGNED, (np.uint32, "UINT32"))
    inputs = []
    for name, value in values.items():
        dtype, datatype = types.get(name, (np.int32, "INT32"))
        inputs.append(client_grpc.InferInput(name, [1, len(value)], datatype))
        inputs[-1].set_data_from_numpy(np.array([value], dtype))
    return inputs


@pytest.mark.parametrize("release", RELEASES)
def test_the_llm_of_each_release(llms, release):
    """Whole and streamed, the same tokens."""
    prompt = token_ids(llms, STORY)
    with client_grpc.InferenceServerClient(llms.grpc) as client, Stream(client) as stream:
        tokens = {}
        for streaming in (False, True):
            inputs = llm_inputs(llms, release, streaming)
            stream.send("r", inputs, model=f"tensorrt_llm_{release}", enable_empty_final_response=True)
            results = [result.as_numpy("output_ids") for result in stream.receive_until_final()]
            tokens[streaming] = np.concatenate([ids.reshape(-1) for ids in results if ids is not None]).tolist()
    assert tokens[False] == prompt + tokens[True]
    assert len(tokens[True]) == TOKENS


@pytest.mark.parametrize(
    ("release", "names"),
    [
        (5, ["greedy"]),  # whose ensemble leaves out the words' ids
        (10, ["greedy", "bad words"]),  # the last one without special tokens where that is left open
        (V1, ["greedy", "stop words", "log-probs"]),
    ],
)
def test_the_text_models_of_a_release(tmp_path, release, names):
    repository = make_repository(tmp_path / "models", release, bls_instance_count=1)
    triton, ours = start_triton(tmp_path, repository), start_server(tmp_path, None, "--model-repository", repository)
    try:
        required = {"bad_words": "", "stop_words": ""} if release == 5 else {}
        models = ["ensemble", "tensorrt_llm_bls"] if release > 5 else ["ensemble"]
        for model in models:
            for name in names:
                texts = [whole_text(server, model, **required | REQUESTS[name]) for server in (triton, ours)]
                assert texts[0] == texts[1] != "", (model, name)
        for model in models[1:]:  # an ensemble decodes each piece by itself
            texts = [streamed_text(server, model, **REQUESTS["greedy"]) for server in (triton, ours)]
            assert texts[0] == texts[1] != ""
    finally:
        assert ours.stop() == 0
        assert triton.stop() == 0, triton.log.read_text(errors="replace")[-4000:]


def whole_text(server, model, **values):
    with generate(server, model, **values) as answer:  # Triton's end waits for connections
        assert answer.status_code == 200, answer.text
        return answer.json()["text_output"]


def streamed_text(server, model, **values):
    url = f"http://{server.http}/v2/models/{model}/generate_stream"
    with requests.post(url, json={**values, "stream": True}, timeout=120) as answer:
        assert answer.status_code == 200, answer.text
    events = [requests.models.complexjson.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert len(events) > 2 and not any("error" in event for event in events), events
    return "".join(event["text_output"] for event in events)
