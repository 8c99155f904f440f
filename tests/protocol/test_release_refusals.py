# SPDX-License-Identifier: Apache-2.0
"""What a release's models declare and this server cannot honour: refused by name where a request uses it, and passed where it
asks for nothing. Swept over the tables of release_repositories.py, from the first release that declares any."""

import numpy as np
import pytest
import tritonclient.grpc as triton
from live_server import DEMO, start_server
from release_repositories import (
    BLS_INPUTS,
    LLM_INPUTS,
    PREPROCESSING_INPUTS,
    RELEASES,
    TEXT_INPUTS,
    V1,
    names,
    of_release,
    write_repository,
)
from test_repositories import PROMPT
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

FILLED = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "True", "max_tokens_in_paged_kv_cache": 1024}
IDS = Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(PROMPT).ids

# Models, their tables, and by what their tensors that are refused begin.
MODELS = {
    "preprocessing": (PREPROCESSING_INPUTS, ("DECODER_QUERY", "IMAGE", "VIDEO")),
    "tensorrt_llm": (
        LLM_INPUTS,
        ("context_phase_params", "cross_attention_mask", "encoder_", "lookahead_", "mrope_", "retention_", "skip_cross_"),
    ),
    "ensemble": (TEXT_INPUTS, ("decoder_text_input", "image_")),
    "tensorrt_llm_bls": (BLS_INPUTS, ("decoder_text_input", "image_", "video_")),
}
PLAIN = {
    "preprocessing": {"QUERY": [PROMPT], "REQUEST_OUTPUT_LEN": [4]},
    "tensorrt_llm": {"input_ids": IDS, "input_lengths": [len(IDS)], "request_output_len": [4]},
    "ensemble": {"text_input": [PROMPT], "max_tokens": [4]},
    "tensorrt_llm_bls": {"text_input": [PROMPT], "max_tokens": [4]},
}
FIRST = 11
# Of the newest releases, so that a table from which they are gone is noticed.
EXPECTED = {
    12: {"DECODER_QUERY", "IMAGE", "decoder_text_input", "image_input"},
    V1: {
        "DECODER_QUERY", "IMAGE_BYTES", "IMAGE_URL", "IMAGES", "VIDEO_BYTES", "context_phase_params", "cross_attention_mask",
        "encoder_input_features", "encoder_output_lengths", "lookahead_ngram_size", "lookahead_verification_set_size",
        "lookahead_window_size", "mrope_position_deltas", "mrope_rotary_cos_sin", "retention_decode_duration_ms",
        "retention_decode_priority", "retention_token_range_durations_ms", "retention_token_range_ends",
        "retention_token_range_priorities", "retention_token_range_starts", "skip_cross_attn_blocks", "decoder_text_input",
        "image_input", "image_bytes_input", "image_url_input", "video_bytes_input",
    },
}  # fmt: skip


def refused(model, release):
    """{tensor: dims} of the release's model."""
    table, beginnings = MODELS[model]
    return {
        row[0]: [int(dim) for dim in row[2].split(",")] for row in of_release(table, release) if row[0].startswith(beginnings)
    }


def tensor(name, datatype, shape, value):
    made = triton.InferInput(name, [1, *shape], datatype)
    filler = np.array(value.encode(), dtype=object) if datatype == "BYTES" else value
    made.set_data_from_numpy(np.full([1, *shape], filler, dtype=triton_to_np_dtype(datatype)))
    return made


def row_of(name, datatype, values):
    values = [value.encode() if isinstance(value, str) else value for value in values]
    made = triton.InferInput(name, [1, len(values)], datatype)
    made.set_data_from_numpy(np.array([values], dtype=triton_to_np_dtype(datatype)))
    return made


def asks_for_nothing(name, datatype, dims):
    """The tensor with a value that changes nothing; None where its shape and type have none."""
    if datatype == "BYTES":
        return tensor(name, datatype, [1], "")
    if datatype == "BOOL" or name.startswith("lookahead_") or name == "encoder_output_lengths":
        return tensor(name, datatype, [1], 0) if dims == [1] else tensor(name, datatype, [0] * len(dims), 0)
    return tensor(name, datatype, [0] * len(dims), 0) if all(dim == -1 for dim in dims) else None


@pytest.fixture(scope="module", params=[release for release in RELEASES if release >= FIRST])
def served(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(f"r{request.param}")
    repository = write_repository(path / "repository", request.param, **FILLED)
    server = start_server(path, None, "--model-repository", repository)
    yield request.param, server
    assert server.stop() == 0, server.log.read_text()[-4000:]


@pytest.mark.parametrize("model", MODELS)
def test_what_is_used_and_cannot_be_honoured_is_refused_by_name(served, model):
    release, server = served
    swept = refused(model, release)
    with triton.InferenceServerClient(server.grpc) as client:
        types = {each["name"]: each["datatype"] for each in client.get_model_metadata(model, as_json=True)["inputs"]}
        plain = [row_of(name, types[name], values) for name, values in PLAIN[model].items()]
        expected = client.infer(model, plain)
        for name, dims in swept.items():
            shape = [2 if dim == -1 else dim for dim in dims]
            used = tensor(name, types[name], shape, "a.png" if types[name] == "BYTES" else 1)
            with pytest.raises(InferenceServerException) as caught:
                client.infer(model, [*plain, used])
            assert name in caught.value.message() and "not supported" in caught.value.message(), (name, caught.value)
            nothing = asks_for_nothing(name, types[name], dims)
            if nothing is None:
                continue
            answer = client.infer(model, [*plain, nothing])
            for output in expected.get_response().outputs:
                if "time_ns" not in output.name and "kv_cache" not in output.name:
                    assert np.array_equal(answer.as_numpy(output.name), expected.as_numpy(output.name)), (name, output.name)


@pytest.mark.parametrize("release", EXPECTED)
def test_the_tables_have_what_is_swept(release):
    found = {name for model in MODELS for name in refused(model, release)}
    assert found == EXPECTED[release]
    declared = {name for table, _ in MODELS.values() for name in names(table, release)}
    assert found < declared
