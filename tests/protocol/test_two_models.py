# SPDX-License-Identifier: Apache-2.0
"""BLS over two models of one server: a draft model proposes, the LLM judges, and answers what it answers alone."""

import json
import re
import shutil
import struct
import subprocess
import sys

import jsonschema
import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEMO, DEVICE, ROOT, serving
from llm_client import Stream, text_of
from release_repositories import write_repository
from test_repositories import EXAMPLES, FILLED, generate, generate_stream, question, typed_inputs

pytestmark = pytest.mark.skipif(DEVICE == "cuda", reason="a GPU verifies no drafts; a CPU, as CI has, runs this")

SCHEMA = json.dumps({"type": "array", "items": {"enum": ["fox", "dog", "cat"]}, "minItems": 3, "maxItems": 6})
RULES = [
    {},
    {"top_k": 12, "temperature": 0.8, "random_seed": 21},
    {"top_p": 0.9, "random_seed": 22, "repetition_penalty": 1.1, "min_length": 9},
    {"stop_words": [" the"], "frequency_penalty": 0.2},
]


def first_layers(directory, num_layers):
    """The demo model's first layers, as a model."""
    shutil.copytree(DEMO, directory, ignore=shutil.ignore_patterns("*.py", "*.jsonl", "*.safetensors"))
    config = json.loads((DEMO / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "num_hidden_layers": num_layers}))
    data = (DEMO / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    layer = re.compile(r"\.layers\.(\d+)\.")
    header, values = {}, b""
    for name, stored in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__" or ((found := layer.search(name)) and int(found[1]) >= num_layers):
            continue
        begin, end = (8 + length + offset for offset in stored["data_offsets"])
        header[name] = {**stored, "data_offsets": [len(values), len(values) + end - begin]}
        values += data[begin:end]
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + values)
    return directory


def add_draft(repository, name, engine_dir):
    """Another LLM beside `tensorrt_llm`, which a BLS may name."""
    shutil.copytree(repository / "tensorrt_llm", repository / name)
    path = repository / name / "config.pbtxt"
    text = path.read_text().replace('name: "tensorrt_llm"', f'name: "{name}"')
    assert str(DEMO) in text
    path.write_text(text.replace(str(DEMO), str(engine_dir)))


@pytest.fixture(scope="module", params=["the same model", "its first layers"])
def server(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("two")
    repository = write_repository(path / "repository", 11, **FILLED, tensorrt_llm_draft_model_name="draft")
    add_draft(repository, "draft", DEMO if request.param == "the same model" else first_layers(path / "layers", 3))
    with serving(path, repository, "--max-draft-len", 5) as server:
        yield server


def counted(server):
    """Draft tokens that the LLM judged so far, and those it accepted."""
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    names = ("inflight_draft_tokens_total", "inflight_draft_tokens_accepted_total")
    return [int(re.search(rf'^{name}{{.*model="tensorrt_llm".*}} (\d+)$', page, re.MULTILINE)[1]) for name in names]


@pytest.mark.parametrize("num_draft_tokens", [1, 5])
def test_answers_are_those_of_the_llm_alone(server, num_draft_tokens):
    before = counted(server)
    for example in EXAMPLES[:6]:
        for rule in RULES:
            asked = {"text_input": example["text_input"], "max_tokens": 24, "return_log_probs": True, **rule}
            alone = generate(server, "ensemble", **asked)
            answer = generate(server, "tensorrt_llm_bls", num_draft_tokens=num_draft_tokens, **asked)
            for name in ("text_output", "output_log_probs"):
                assert answer[name] == alone[name]
            assert answer["cum_log_probs"] == pytest.approx(alone["cum_log_probs"], abs=1e-4)
    drafted, accepted = (after - earlier for after, earlier in zip(counted(server), before, strict=True))
    assert 0 < accepted <= drafted


def test_greedy_answers_by_draft_logits_are_the_same(server):
    asked = {"text_input": EXAMPLES[0]["text_input"], "max_tokens": 20}
    alone = generate(server, "ensemble", **asked)
    answer = generate(server, "tensorrt_llm_bls", num_draft_tokens=4, use_draft_logits=True, **asked)
    assert answer["text_output"] == alone["text_output"]


def test_sampled_answers_by_draft_logits_are_texts(server):
    asked = {"text_input": "Once upon a time", "max_tokens": 30, "top_k": 20, "random_seed": 3}
    texts = [
        generate(server, "tensorrt_llm_bls", num_draft_tokens=4, use_draft_logits=True, **asked)["text_output"]
        for _ in range(2)
    ]
    assert texts[0] == texts[1], "the seed decides"
    assert len(texts[0]) > len("Once upon a time") + 20


def test_streams_join_to_the_answer(server):
    asked = {"text_input": "Once upon a time", "max_tokens": 40}
    whole = generate(server, "tensorrt_llm_bls", num_draft_tokens=3, **asked)["text_output"]
    chunks = generate_stream(server, "tensorrt_llm_bls", num_draft_tokens=3, **asked)
    assert len(chunks) > 5
    assert "Once upon a time" + "".join(c["text_output"] for c in chunks) == whole


# Its own loop, without BLS, is for repositories that are not decoupled (tests/compat).
def test_upstreams_tool_finds_no_difference(server):
    tool = ROOT / "compat/layout/tools/inflight_batcher_llm/speculative_decoding_test.py"
    data = ROOT / "compat/layout/ci/L0_backend_trtllm/simple_data.json"
    command = [
        sys.executable, tool, "--url-target", server.grpc, "--execute-bls-speculative-decoding",
        "--draft-tensorrt-llm-model-name", "draft", "--dataset", data, "--max-input-len", "500", "-o", "12",
        "--num-draft-tokens", "4",
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"failed/total: 0/\d+", done.stdout.splitlines()[-1])


def test_over_grpc(server):
    with triton.InferenceServerClient(server.grpc) as client, Stream(client) as stream:
        inputs = typed_inputs(client, "tensorrt_llm_bls", **question(num_draft_tokens=2))
        stream.send("r", inputs, model="tensorrt_llm_bls", enable_empty_final_response=True)
        texts = [text_of(r) for r in stream.receive_until_final() if r.get_response().outputs]
    assert texts == [generate(server, "ensemble", **question())["text_output"]]


@pytest.mark.parametrize("with_logits", [False, True])
def test_guided_answers_are_those_of_the_llm_alone(tmp_path, with_logits):
    repository = write_repository(tmp_path / "repository", 19, **FILLED, tensorrt_llm_draft_model_name="draft")
    add_draft(repository, "draft", first_layers(tmp_path / "layers", 3))
    guides = [("regex", r"(apples|pears)(, (apples|pears|plums)){4,9}\."), ("json", None), ("json_schema", SCHEMA)]
    with serving(tmp_path, repository, "--max-draft-len", 5) as server:
        for kind, guide in guides:
            for rule in RULES[: 1 if with_logits else 3]:
                asked = {"text_input": "Once", "max_tokens": 60, "guided_decoding_guide_type": kind, **rule}
                if guide:
                    asked["guided_decoding_guide"] = guide
                asked["exclude_input_in_output"] = True
                alone = generate(server, "ensemble", **asked)["text_output"]
                drafted = {"num_draft_tokens": 4, "use_draft_logits": with_logits, **asked}
                assert generate(server, "tensorrt_llm_bls", **drafted)["text_output"] == alone
                if kind == "regex":
                    assert re.fullmatch(guide, alone)
                if guide == SCHEMA:
                    jsonschema.validate(json.loads(alone), json.loads(guide))
        drafted, accepted = counted(server)
        assert 0 < accepted <= drafted


def test_a_draft_model_that_is_not_there_is_an_error_of_the_request(tmp_path):
    repository = write_repository(tmp_path / "repository", 11, **FILLED, tensorrt_llm_draft_model_name="nosuch")
    with serving(tmp_path, repository, "--max-draft-len", 5) as server:
        assert "error" not in generate(server, "tensorrt_llm_bls", **question())
        error = generate(server, "tensorrt_llm_bls", **question(num_draft_tokens=2))["error"]
        assert "Model 'nosuch' is not ready" in error and "tensorrt_llm_draft_model_name" in error
