# SPDX-License-Identifier: Apache-2.0
"""Prompt tables over public clients. The reference is the model's own vocabulary: a table whose rows are the embeddings of
tokens means, in their places, what the tokens mean, so that the answer has to be that of the plain prompt.
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import requests
from live_server import DEMO, start_server
from llm_client import Stream
from matrix_client import CLIENTS, TOKENIZER, VOCAB_SIZE, ids_of
from release_repositories import OURS, V1, write_repository
from safetensors_rows import header
from tritonclient.utils import InferenceServerException

END_ID = 2044
PROMPT = "Once upon a time there was a fox who told a story to a small bird."
FILLED = {
    "engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "True", "exclude_input_in_output": "True",
    "prompt_embedding_table_data_type": "TYPE_FP32",
}  # fmt: skip
MAX_TOKENS = 24


def embeddings():
    """[vocab_size, hidden_size] float32 of the demo model, which keeps them in bfloat16."""
    tensors, values = header(DEMO / "model.safetensors")
    described = tensors["model.embed_tokens.weight"]
    assert described["dtype"] == "BF16"
    begin, end = described["data_offsets"]
    bits = np.frombuffer(values[begin:end], np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(described["shape"])


EMBEDDINGS = embeddings()
IDS = ids_of(PROMPT)
# Some of the prompt's tokens, and rows of a table in their places.
REPLACED = [1, 2, 5, len(IDS) - 1]
TABLE = EMBEDDINGS[[IDS[i] for i in REPLACED]]
VIRTUAL = [VOCAB_SIZE + REPLACED.index(i) if i in REPLACED else token for i, token in enumerate(IDS)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A repository of our own tensors, and a directory of tables."""
    path = tmp_path_factory.mktemp("tables")
    repository = write_repository(path / "repository", OURS, **FILLED)
    tables = path / "tables"
    tables.mkdir()
    np.save(tables / "7.npy", TABLE)
    np.save(tables / "wide.npy", np.zeros((2, 3), np.float32))
    np.save(tables / "nan.npy", np.full((2, EMBEDDINGS.shape[1]), np.nan, np.float32))
    server = start_server(path, None, "--model-repository", repository, "--prompt-table-dir", tables)
    server.tables = tables
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def tensor(client, name, values, datatype):
    values = np.asarray(values)
    made = client.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values)
    return made


def llm_inputs(client, ids, table=None, datatype="FP32", **more):
    inputs = [
        tensor(client, "input_ids", np.array([ids], np.int32), "INT32"),
        tensor(client, "input_lengths", np.array([[len(ids)]], np.int32), "INT32"),
        tensor(client, "request_output_len", np.array([[MAX_TOKENS]], np.int32), "INT32"),
        tensor(client, "end_id", np.array([[END_ID]], np.int32), "INT32"),
    ]
    if table is not None:
        element = {"FP32": np.float32, "FP16": np.float16}[datatype]
        inputs.append(tensor(client, "prompt_embedding_table", table[None].astype(element), datatype))
    for name, (value, kind) in more.items():
        inputs.append(tensor(client, name, value, kind))
    return inputs


def connect(server, transport):
    return CLIENTS[transport].InferenceServerClient(getattr(server, transport))


def ask_ids(server, transport, ids, table=None, **more):
    """The generated ids of tensorrt_llm, and the answer."""
    client = CLIENTS[transport]
    with connect(server, transport) as connection, Streamed(server, transport, connection) as infer:
        result = infer("tensorrt_llm", llm_inputs(client, ids, table, **more))
    length = result.as_numpy("sequence_length")[0, 0]
    return result.as_numpy("output_ids")[0, 0, :length].tolist(), result


class Streamed:
    """infer() of a decoupled model: over gRPC by a stream, over HTTP as it is (one response)."""

    def __init__(self, server, transport, connection):
        self.transport, self.connection = transport, connection

    def __enter__(self):
        return self.infer

    def __exit__(self, *_):
        pass

    def infer(self, model, inputs, **kwargs):
        if self.transport == "http":
            return self.connection.infer(model, inputs, **kwargs)
        with Stream(self.connection) as stream:
            stream.send("r", inputs, model=model, enable_empty_final_response=True, **kwargs)
            answers = stream.receive_until_final()
        return answers[0]


def text_inputs(client, text, table=None):
    """Text models declare FP16."""
    inputs = [
        tensor(client, "text_input", np.array([[text.encode()]], object), "BYTES"),
        tensor(client, "max_tokens", np.array([[MAX_TOKENS]], np.int32), "INT32"),
    ]
    if table is not None:
        inputs.append(tensor(client, "prompt_embedding_table", table[None].astype(np.float16), "FP16"))
        inputs.append(tensor(client, "prompt_vocab_size", np.array([[len(table)]], np.int32), "INT32"))
    return inputs


def text_of(result):
    return result.as_numpy("text_output").reshape(-1)[0].decode()


# --- rows mean what their ids' places say ---


@pytest.mark.parametrize("transport", CLIENTS)
def test_rows_stand_where_their_ids_stand(server, transport):
    plain, _ = ask_ids(server, transport, IDS)
    assert len(plain) > 3
    assert ask_ids(server, transport, VIRTUAL, TABLE)[0] == plain
    others = EMBEDDINGS[[(i * 7) % VOCAB_SIZE for i in IDS[: len(TABLE)]]]
    assert ask_ids(server, transport, VIRTUAL, others)[0] != plain


@pytest.mark.parametrize("transport", CLIENTS)
def test_logits_and_log_probs_are_those_of_the_tokens(server, transport):
    asked = {
        name: (np.array([[True]]), "BOOL") for name in ("return_context_logits", "return_generation_logits", "return_log_probs")
    }
    _, plain = ask_ids(server, transport, IDS, **asked)
    _, rows = ask_ids(server, transport, VIRTUAL, TABLE, **asked)
    for name in ("context_logits", "generation_logits", "output_log_probs", "cum_log_probs"):
        assert np.abs(plain.as_numpy(name) - rows.as_numpy(name)).max() <= 1e-4, name


def test_a_beam_search_continues_rows(server):
    width = {"beam_width": (np.array([[3]], np.int32), "INT32")}
    _, plain = ask_ids(server, "http", IDS, **width)
    _, rows = ask_ids(server, "http", VIRTUAL, TABLE, **width)
    assert plain.as_numpy("output_ids").shape[1] == 3
    assert (plain.as_numpy("output_ids") == rows.as_numpy("output_ids")).all()


def test_streamed_tokens_are_those_of_one_answer(server):
    client = CLIENTS["grpc"]
    plain, _ = ask_ids(server, "grpc", IDS)
    inputs = llm_inputs(client, VIRTUAL, TABLE, streaming=(np.array([[True]]), "BOOL"))
    with connect(server, "grpc") as connection, Stream(connection) as stream:
        stream.send("s", inputs, model="tensorrt_llm", enable_empty_final_response=True)
        parts = [r for r in stream.receive_until_final() if r.get_response().outputs]
    assert len(parts) > 3
    got = [i for r in parts for i in r.as_numpy("output_ids").reshape(-1)[: r.as_numpy("sequence_length")[0, 0]].tolist()]
    assert got == plain


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
@pytest.mark.parametrize("transport", CLIENTS)
def test_a_text_is_continued_behind_all_rows(server, transport, model):
    """A text names no row: the table stands before it, as ids would."""
    first = "Tell me about"
    client = CLIENTS[transport]
    table = EMBEDDINGS[ids_of(first)]
    expected, _ = ask_ids(server, transport, ids_of(first) + ids_of(PROMPT))
    with connect(server, transport) as connection, Streamed(server, transport, connection) as infer:
        answer = text_of(infer(model, text_inputs(client, PROMPT, table)))
    assert answer == TOKENIZER.decode(expected)


@pytest.mark.parametrize("release", [11, 12, 13, V1])
def test_ensembles_of_releases_pass_tables_on(tmp_path, release):
    """Declared as FP16 before 1.0: rounded rows still answer like their tokens."""
    repository = write_repository(tmp_path / "repository", release, **FILLED)
    datatype = "FP32" if release == V1 else "FP16"
    server = start_server(tmp_path, None, "--model-repository", repository)
    try:
        plain, _ = ask_ids(server, "http", IDS)
        assert ask_ids(server, "http", VIRTUAL, TABLE, datatype=datatype)[0] == plain
        first = "Tell me about"
        expected, _ = ask_ids(server, "http", ids_of(first) + ids_of(PROMPT))
        inputs = text_inputs(CLIENTS["http"], PROMPT, EMBEDDINGS[ids_of(first)])
        if release >= 13:
            inputs.append(tensor(CLIENTS["http"], "prompt_table_extra_id", np.array([[9]], np.uint64), "UINT64"))
        with connect(server, "http") as connection:
            whole = connection.infer("ensemble", inputs)
            assert text_of(whole) in (TOKENIZER.decode(expected), PROMPT + TOKENIZER.decode(expected))
    finally:
        assert server.stop() == 0


def test_preprocessing_has_extra_ids_for_ids_of_no_vocabulary(tmp_path):
    repository = write_repository(tmp_path / "repository", 13, **FILLED)
    server = start_server(tmp_path, None, "--model-repository", repository)
    try:
        client = CLIENTS["http"]
        inputs = [
            tensor(client, "QUERY", np.array([[PROMPT.encode()]], object), "BYTES"),
            tensor(client, "REQUEST_OUTPUT_LEN", np.array([[3]], np.int32), "INT32"),
            tensor(client, "PROMPT_TABLE_EXTRA_ID", np.array([[9]], np.uint64), "UINT64"),
        ]
        with connect(server, "http") as connection:
            result = connection.infer("preprocessing", inputs)
        ids, extra = result.as_numpy("INPUT_ID"), result.as_numpy("OUT_PROMPT_TABLE_EXTRA_IDS")
        assert extra.shape == ids.shape and not extra.any(), "the text's ids are all in the vocabulary"
    finally:
        assert server.stop() == 0


# --- blocks of equal ids ---


def cached_tokens(server, ids, table, **more):
    asked = {"return_num_cached_tokens": (np.array([[True]]), "BOOL"), **more}
    return int(ask_ids(server, "http", ids, table, **asked)[1].as_numpy("num_cached_tokens").reshape(-1)[0])


def test_blocks_are_shared_among_equal_tables_alone(server):
    table = np.random.default_rng(3).standard_normal((100, EMBEDDINGS.shape[1])).astype(np.float32) * EMBEDDINGS.std()
    ids = [VOCAB_SIZE + i for i in range(100)] + IDS
    other = table.copy()
    other[99] *= 2
    extra = {"prompt_table_extra_ids": (np.array([[5] * 100 + [0] * len(IDS)], np.uint64), "UINT64")}
    assert cached_tokens(server, ids, table) == 0
    assert cached_tokens(server, ids, table) == 64
    assert cached_tokens(server, [*ids, 7], table) == 64, "whatever follows"
    assert cached_tokens(server, ids, other) == 0
    assert cached_tokens(server, ids, table, **extra) == 0
    assert cached_tokens(server, ids, table, **extra) == 64


# --- tables of the server ---


def generate(server, model, **values):
    body = {"bad_words": "", "stop_words": "", "max_tokens": MAX_TOKENS, **values}
    return requests.post(f"http://{server.http}/v2/models/{model}/generate", json=body, timeout=60)


def test_a_request_names_one_of_the_servers_tables(server):
    plain, _ = ask_ids(server, "http", [*(IDS[i] for i in REPLACED), *ids_of("The fox")])
    for task in ("7", 7):
        answer = generate(server, "ensemble", text_input="The fox", prompt_task=task)
        assert answer.status_code == 200, answer.text
        assert answer.json()["text_output"] == TOKENIZER.decode(plain)
    with connect(server, "http") as connection:
        result = connection.infer("tensorrt_llm", llm_inputs(CLIENTS["http"], VIRTUAL), parameters={"prompt_task": "7"})
        own, _ = ask_ids(server, "http", IDS)
        assert result.as_numpy("output_ids")[0, 0, : len(own)].tolist() == own


def test_a_table_that_changes_is_read_again(server):
    path = server.tables / "changing.npy"
    answers = []
    for words in ("Tell me about", "The little bird said"):
        np.save(path, EMBEDDINGS[ids_of(words)])
        answers.append(generate(server, "ensemble", text_input=PROMPT, prompt_task="changing").json()["text_output"])
        expected, _ = ask_ids(server, "http", ids_of(words) + ids_of(PROMPT))
        assert answers[-1] == TOKENIZER.decode(expected)
    path.unlink()
    assert "prompt_task: got 'changing'" in generate(server, "ensemble", text_input="a", prompt_task="changing").json()["error"]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("none", "prompt_task: got 'none', the server has neither none.npy nor none.safetensors"),
        ("../7", "prompt_task: got a name of other characters"),
        (True, "prompt_task: the parameter has another type"),
        ("wide", "prompt_embedding_table: got rows of 3 values, the model's have 256"),
        ("nan", "prompt_embedding_table: got nan at row 0, place 0; must be finite"),
    ],
)
def test_tasks_that_the_server_does_not_have_are_named(server, task, message):
    answer = generate(server, "ensemble", text_input=PROMPT, prompt_task=task)
    assert answer.status_code == 400 and message in answer.json()["error"], answer.text


# --- what is wrong is named ---


@pytest.mark.parametrize(
    ("ids", "table", "more", "message"),
    [
        ([VOCAB_SIZE + 4], TABLE, {}, f"input_ids: got token id {VOCAB_SIZE + 4}, must be in [0, {VOCAB_SIZE + 4})"),
        ([VOCAB_SIZE], None, {}, f"input_ids: got token id {VOCAB_SIZE}, must be in [0, {VOCAB_SIZE})"),
        (VIRTUAL, TABLE[:, :8], {}, "prompt_embedding_table: got rows of 8 values, the model's have 256"),
        (VIRTUAL, np.zeros((8193, 256), np.float32), {}, "prompt_embedding_table: got 8193 rows, must be 1 to 8192"),
        (VIRTUAL, np.where(np.arange(256) == 3, np.inf, TABLE), {}, "prompt_embedding_table: got inf at row 0, place 3"),
        (VIRTUAL, TABLE, {"prompt_vocab_size": 5}, "prompt_vocab_size: got 5, prompt_embedding_table has 4 rows"),
        (VIRTUAL, TABLE, {"prompt_vocab_size": 2}, f"input_ids: got token id {VOCAB_SIZE + 2}"),
        (IDS, None, {"prompt_vocab_size": 4}, "Prompt embedding table and prompt vocab size tensors must both be provided"),
    ],
)
def test_what_is_wrong_is_named(server, ids, table, more, message):
    scalars = {name: (np.array([[value]], np.int32), "INT32") for name, value in more.items()}
    with pytest.raises(InferenceServerException) as raised:
        ask_ids(server, "http", ids, table, **scalars)
    assert message in str(raised.value)


def test_a_table_and_a_task_are_one_too_many(server):
    with connect(server, "http") as connection, pytest.raises(InferenceServerException, match="send one of them"):
        connection.infer("tensorrt_llm", llm_inputs(CLIENTS["http"], VIRTUAL, TABLE), parameters={"prompt_task": "7"})


def test_an_engine_built_without_tables_refuses_them(tmp_path):
    inflight = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    limits = {}
    for name, flags in {"none": [], "four": ["--max_multimodal_len", "4"]}.items():
        engine = tmp_path / name
        command = [inflight, "build", "--model-dir", DEMO, "--output-dir", engine, "--target", "cpu", "--dtype", "float32"]
        subprocess.run([*command, *flags], check=True)
        limits[name] = json.loads((engine / "config.json").read_text())["build_config"]["max_prompt_embedding_table_size"]
        (work := tmp_path / f"work_{name}").mkdir()
        repository = write_repository(work / "repository", OURS, **{**FILLED, "engine_dir": engine})
        server = start_server(work, None, "--model-repository", repository)
        try:
            if name == "four":
                assert ask_ids(server, "http", VIRTUAL, TABLE)[0] == ask_ids(server, "http", IDS)[0]
                continue
            with pytest.raises(InferenceServerException, match="prompt_embedding_table: the engine was built without"):
                ask_ids(server, "http", VIRTUAL, TABLE)
        finally:
            assert server.stop() == 0
    assert limits == {"none": 0, "four": 4}
