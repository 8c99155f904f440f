# SPDX-License-Identifier: Apache-2.0
"""Medusa as deployers and clients see it: a model with heads is served with drafts of theirs and answers as without, and the
keys `decoding_mode` and `medusa_choices`.

The heads are those of a Medusa that was never trained: blocks of zeros before the model's own head, so that each says the
next token once more. That is right where tokens repeat.
"""

import json
import subprocess

import pytest
from live_server import DEMO, DTYPE, start_error, start_server
from release_repositories import OURS, write_repository
from safetensors_rows import header, write
from server_log import messages
from test_repositories import INFLIGHT, generate_stream
from test_speculation import KINDS, LIST, PROMPTS, ask, counted

HIDDEN, NUM_HEADS = 256, 3
REPEATS = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
QUESTIONS = [{"text_input": prompt, "max_tokens": 40, **kind} for prompt in [*PROMPTS, REPEATS] for kind in KINDS]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The demo model with heads, converted."""
    path = tmp_path_factory.mktemp("medusa")
    heads = path / "heads"
    heads.mkdir()
    stored, values = header(DEMO / "model.safetensors")
    table = stored["model.embed_tokens.weight"]
    table = (table["dtype"], table["shape"], values[slice(*table["data_offsets"])])
    tensors = {}
    for head in range(NUM_HEADS):
        tensors[f"{head}.0.linear.weight"] = ("BF16", [HIDDEN, HIDDEN], bytes(2 * HIDDEN * HIDDEN))
        tensors[f"{head}.0.linear.bias"] = ("BF16", [HIDDEN], bytes(2 * HIDDEN))
        tensors[f"{head}.1.weight"] = table
    write(heads / "medusa_lm_head.safetensors", tensors)
    (heads / "config.json").write_text(json.dumps({"medusa_num_heads": NUM_HEADS, "base_model_name_or_path": "demo"}))
    convert = [INFLIGHT, "convert", "--model_dir", DEMO, "--medusa_model_dir", heads, "--num_medusa_heads", 4]
    subprocess.run([*map(str, convert), "--output_dir", str(path / "checkpoint")], check=True, timeout=60)
    return path / "checkpoint"


@pytest.fixture(scope="module")
def serve(checkpoint, tmp_path_factory):
    """A server of the model with heads and those keys, the same for the same keys."""
    servers = {}

    def get(**keys):
        name = json.dumps(keys)
        if name not in servers:
            path = tmp_path_factory.mktemp("serve")
            filled = {"engine_dir": checkpoint, "tokenizer_dir": checkpoint, "decoupled_mode": "True", **keys}
            repository = write_repository(path / "repository", OURS, **filled)
            servers[name] = start_server(path, None, "--model-repository", repository)
        return servers[name]

    yield get
    for server in servers.values():
        assert server.stop() == 0, server.log.read_text()[-4000:]


def test_the_checkpoint_says_that_it_has_heads(checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["architecture"] == "MedusaForCausalLM"
    assert (config["num_medusa_heads"], config["num_medusa_layers"]) == (NUM_HEADS, 1)
    tensors, _ = header(checkpoint / "rank0.safetensors")
    assert tensors["medusa_heads.2.medusa_layers.0.linear.weight"]["shape"] == [HIDDEN, HIDDEN]
    assert tensors["medusa_heads.2.lm_head.weight"]["shape"] == [2048, HIDDEN]


@pytest.mark.parametrize("choices", [None, "{0}, {0, 0}, {1}, {0, 1}, {0, 0, 0}"])
def test_answers_are_the_same_with_heads(plain, serve, choices):
    server = serve(**({"medusa_choices": choices} if choices else {}), exclude_input_in_output="True")
    answers = [ask(server, question) for question in QUESTIONS]
    assert answers == [ask(plain, question) for question in QUESTIONS]
    drafted, accepted = counted(server)
    assert drafted >= accepted
    assert drafted > 0, "the first ones of a server are tried; later how many depends on what steps cost"


def test_streams_are_the_same_text(plain, serve):
    server = serve(exclude_input_in_output="True")
    for question in QUESTIONS[::5]:
        texts = ["".join(c["text_output"] for c in generate_stream(s, "ensemble", **question)) for s in (plain, server)]
        assert texts[0] == texts[1]


def test_a_mode_that_is_not_medusa_is_said(serve):
    unset = messages(serve(exclude_input_in_output="True").log.read_text())
    assert any("the model's Medusa heads propose tokens, which medusa would say" in message for message in unset)
    named = messages(serve(exclude_input_in_output="True", decoding_mode="medusa").log.read_text())
    assert not any("medusa would say" in message for message in named)


def test_medusa_without_heads_is_auto(tmp_path, plain):
    repository = write_repository(
        tmp_path / "repository", OURS, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True", decoding_mode="medusa",
        exclude_input_in_output="True",
    )  # fmt: skip
    server = start_server(tmp_path, None, "--model-repository", repository)
    question = {"text_input": LIST, "max_tokens": 8, "top_k": 5, "random_seed": 1}
    assert ask(server, question) == ask(plain, question)
    assert counted(server) == [0, 0]
    assert any("medusa is replaced by auto, since no Medusa heads propose" in line for line in messages(server.log.read_text()))
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("model", "choices", "message"),
    [
        ("heads", "{0}, {1, 0}", "medusa_choices: got {1, 0}, which needs {1}; list every beginning of a path"),
        ("heads", "[[0], [0]]", "medusa_choices: got {0}, which stands there twice"),
        ("heads", "{0}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0}", "4 choices deep, the model has 3 heads"),
        ("heads", "{0}, {0, x}", "medusa_choices: got 'x' at character 10, a whole number is needed"),
        ("heads", "{0}, {2048}", "medusa_choices: got {2048}, a choice must be in [0, 256)"),
        ("none", "{0}", "medusa_choices: the model has no Medusa heads"),
    ],
)
def test_choices_that_are_no_tree_are_refused(checkpoint, tmp_path, model, choices, message):
    engine = checkpoint if model == "heads" else DEMO
    repository = write_repository(
        tmp_path / "repository", OURS, engine_dir=engine, tokenizer_dir=engine, decoupled_mode="True", medusa_choices=choices
    )
    command = [INFLIGHT, "serve", "--model-repository", repository, "--device", "cpu", "--http-port", 0, "--grpc-port", 0]
    assert message in start_error([*command, "--metrics-port", 0])


def test_heads_are_left_out_where_nobody_wants_them(checkpoint, tmp_path, plain):
    server = start_server(tmp_path, checkpoint, "--speculation", "none")
    question = {"text_input": REPEATS, "max_tokens": 16}
    assert ask(server, question) == ask(plain, question)
    assert counted(server) == [0, 0]
    assert server.stop() == 0


def test_an_engine_has_the_heads_too(checkpoint, tmp_path, plain):
    build = [INFLIGHT, "build", "--checkpoint_dir", checkpoint, "--output_dir", tmp_path / "engine", "--dtype", DTYPE]
    subprocess.run([*map(str, build), "--speculative_decoding_mode", "medusa", "--max_draft_len", "63"], check=True, timeout=60)
    config = json.loads((tmp_path / "engine/config.json").read_text())
    assert config["pretrained_config"]["num_medusa_heads"] == NUM_HEADS
    assert config["build_config"]["speculative_decoding_mode"] == 4
    server = start_server(tmp_path, tmp_path / "engine")
    question = {"text_input": REPEATS, "max_tokens": 40}
    assert ask(server, question) == ask(plain, question)
    assert counted(server)[0] > 0
    assert server.stop() == 0
