# SPDX-License-Identifier: Apache-2.0
"""Models of our plug-in in NVIDIA's Triton server come and go, fail by name, and serve other backends' models."""

import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
import requests
import tritonclient.grpc as client_grpc
from llm_client import Stream, kv_blocks, token_ids, wait_until, wait_until_idle
from real_triton import DEMO, make_repository, start_triton
from test_plugin import STORY, llm_inputs, responses, samples
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
TEXT_MODELS = ("preprocessing", "postprocessing", "ensemble", "tensorrt_llm_bls")
SPEECH = """
name: "speech" backend: "python" max_batch_size: 1
model_transaction_policy { decoupled: true }
input [ { name: "ids" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "num_chunks" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "chunk" data_type: TYPE_INT32 dims: [ -1 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
"""
GUIDES = """
input [
  { name: "guided_decoding_guide_type" data_type: TYPE_STRING dims: [ 1 ] optional: true },
  { name: "guided_decoding_guide" data_type: TYPE_STRING dims: [ 1 ] optional: true }
]
"""

PATH_KEY = 'parameters: {{\n  key: "gpt_model_path"\n  value: {{\n    string_value: "{}"\n  }}\n}}\n'
DAMAGES = {
    "of_tensorrt": lambda _: b"ftrt" + bytes(1000),  # as TensorRT's begin
    "of_version_99": lambda data: data[:16] + (99).to_bytes(4, "little") + data[20:],
    "cut_off": lambda data: data[:-4096],
}


def change(repository, source, name, *edits):
    """A copy of the model `source` as `name`, its configuration edited."""
    if name != source:
        shutil.copytree(repository / source, repository / name)
    config = repository / name / "config.pbtxt"
    text = config.read_text().replace(f'name: "{source}"', f'name: "{name}"', 1)
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    config.write_text(text)


@pytest.fixture(scope="module")
def controlled(tmp_path_factory):
    """Nothing is loaded until it is asked for."""
    path = tmp_path_factory.mktemp("controlled")
    repository = make_repository(path / "models", without=TEXT_MODELS)
    (repository / "tensorrt_llm/2").mkdir()
    change(repository, "tensorrt_llm", "v1", ("inflight_batching", "V1"), ("decoupled: true", "decoupled: false"))
    change(repository, "tensorrt_llm", "inflight_named", ('backend: "tensorrtllm"', 'backend: "inflight"'))
    change(repository, "tensorrt_llm", "two_instances", ("count: 1", "count: 2"))
    change(repository, "tensorrt_llm", "guided")
    with open(repository / "guided/config.pbtxt", "a") as config:
        config.write(GUIDES)
    versions = ("backend:", "version_policy: { all {} }\nbackend:")
    change(repository, "tensorrt_llm", "tensorrt_llm", versions)
    (repository / "speech/1").mkdir(parents=True)
    (repository / "speech/config.pbtxt").write_text(SPEECH)
    shutil.copy(HERE / "speech_model.py", repository / "speech/1/model.py")
    inflight = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    build = [inflight, "build", "--checkpoint-dir", DEMO, "--output-dir", path / "built", "--dtype", "float32"]
    subprocess.run(build, check=True, capture_output=True)
    for name, damage in DAMAGES.items():
        shutil.copytree(path / "built", path / name)
        engine = path / name / "rank0.engine"
        engine.write_bytes(damage(engine.read_bytes()))
        change(repository, "v1", name, (str(DEMO), str(path / name)))
    shutil.copytree(path / "built", path / "of_no_file")
    (path / "of_no_file/rank0.engine").unlink()
    (path / "of_no_file/rank0.engine").mkdir()
    change(repository, "v1", "of_no_file", (str(DEMO), str(path / "of_no_file")))
    change(repository, "v1", "of_nothing", (str(DEMO), str(path / "nowhere")))
    change(repository, "v1", "of_no_path", (PATH_KEY.format(DEMO), ""))
    for name in ("input_ids", "request_output_len"):
        change(repository, "v1", f"without_{name}", (f'name: "{name}"', f'name: "other_{name}"'))
    change(repository, "v1", "bad_type", ('"V1"', '"V3"'))
    change(repository, "v1", "bad_period", ("${cancellation_check_period_ms}", "soon"))
    server = start_triton(path, repository, "--model-control-mode=explicit", "--load-model=tensorrt_llm")
    server.model_dir = DEMO
    yield server
    assert server.process.poll() is None, server.log.read_text(errors="replace")[-4000:]
    assert server.stop() == 0, server.log.read_text(errors="replace")[-4000:]


def control(server, action, model):
    return requests.post(f"http://{server.http}/v2/repository/models/{model}/{action}", timeout=120)


def ready(server, model):
    return requests.get(f"http://{server.http}/v2/models/{model}/ready", timeout=60).status_code == 200


def infer(server, model, max_tokens=6):
    with client_grpc.InferenceServerClient(server.grpc) as client, Stream(client) as stream:
        stream.send("", llm_inputs(server, STORY, max_tokens, streaming=False), model=model)
        result, error = stream.receive()
        assert error is None, error
        return result.as_numpy("output_ids").tolist()


def test_answers_are_guided(controlled):
    """A text of the expression for each request, guided and free ones beside each other, and a wrong guide by name."""
    assert control(controlled, "load", "guided").status_code == 200
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))

    def inputs(kind=None, guide=None):
        made = llm_inputs(controlled, STORY, 24, streaming=False)
        for name, text in (("guided_decoding_guide_type", kind), ("guided_decoding_guide", guide)):
            if text is not None:
                made.append(client_grpc.InferInput(name, [1, 1], "BYTES"))
                made[-1].set_data_from_numpy(np.array([[text.encode()]], dtype=object))
        return made

    guides = {"free": (), "date": ("regex", r"20\d\d-0[1-9]"), "choice": ("ebnf_grammar", 'root ::= "red" | "greenish"'),
              "schema": ("json_schema", '{"type": "boolean"}'), "bad": ("regex", "(")}  # fmt: skip
    texts, errors = {}, {}
    with client_grpc.InferenceServerClient(controlled.grpc) as client, Stream(client) as stream:
        for name, guide in guides.items():
            stream.send(name, inputs(*guide), model="guided")
            result, error = stream.receive()
            if error is not None:
                errors[name] = error.message()
                continue
            length = result.as_numpy("sequence_length").reshape(-1)[0]
            ids = result.as_numpy("output_ids").reshape(-1)[:length].tolist()
            texts[name] = tokenizer.decode(ids[len(token_ids(controlled, STORY)) :])
    assert re.fullmatch(r"20\d\d-0[1-9]", texts["date"])
    assert texts["choice"] in ("red", "greenish")
    assert texts["schema"] in ("true", "false")
    assert texts["free"]
    assert list(errors) == ["bad"] and "guided_decoding_guide" in errors["bad"]
    assert control(controlled, "unload", "guided").status_code == 200
    wait_for_unloads(controlled)


def resident_kib(server):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text())[1])


def num_threads(server):
    return len(list(pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()))


def test_several_models_and_versions(controlled):
    expected = infer(controlled, "tensorrt_llm")
    for model in ("v1", "inflight_named", "two_instances"):
        assert control(controlled, "load", model).status_code == 200
        assert ready(controlled, model) and infer(controlled, model) == expected
    versions = {key for key in samples(controlled, "nv_trt_llm_request_metrics") if 'request_type="max"' in key}
    assert {re.search(r'version="(\d)"', key)[1] for key in versions if 'model="tensorrt_llm"' in key} == {"1", "2"}
    assert samples(controlled, "nv_trt_llm_v1_metrics") and not any("v1" in key for key in samples(controlled, "nv_trt_llm_inf"))
    for model in ("v1", "inflight_named", "two_instances"):
        assert control(controlled, "unload", model).status_code == 200
    wait_for_unloads(controlled)
    assert {re.search(r'model="(\w+)"', key)[1] for key in samples(controlled, "nv_trt_llm_")} == {"tensorrt_llm"}
    assert infer(controlled, "tensorrt_llm") == expected


def wait_for_unloads(server):
    def unloaded():
        index = requests.post(f"http://{server.http}/v2/repository/index", json={}, timeout=60).json()
        return not any(entry.get("state") == "UNLOADING" for entry in index)

    wait_until(unloaded)


def test_an_unload_gives_everything_back(controlled):
    def round_trip():
        assert control(controlled, "load", "v1").status_code == 200
        infer(controlled, "v1", max_tokens=40)
        loaded = resident_kib(controlled)
        assert control(controlled, "unload", "v1").status_code == 200
        wait_for_unloads(controlled)
        return loaded

    round_trip()
    threads, resident = num_threads(controlled), resident_kib(controlled)
    loaded = [round_trip() for _ in range(4)]
    assert num_threads(controlled) <= threads
    weights_kib = (DEMO / "model.safetensors").stat().st_size / 1024
    assert max(loaded) > resident + weights_kib  # what a leak would leave each time
    assert resident_kib(controlled) < resident + weights_kib


FAILURES = {
    "of_tensorrt": r"engines of TensorRT-LLM cannot be read; run `inflight build`",
    "of_version_99": r"rank0\.engine.* version 99, this program reads \d+; rebuild it with `inflight build ",
    "cut_off": r"rank0\.engine.*truncated",
    "of_no_file": r"of_no_file/rank0\.engine",
    "of_nothing": r"gpt_model_path: '.*/nowhere' does not exist",
    "of_no_path": r"gpt_model_path is not set, and '.*/of_no_path/\d' holds no engine",
    "without_input_ids": r"tensorrt_llm models, which have the inputs input_ids and request_output_len",
    "without_request_output_len": r"tensorrt_llm models, which have the inputs input_ids and request_output_len",
    "bad_type": r"Invalid gpt_model_type",
    "bad_period": r"cancellation_check_period_ms: got \"soon\", must be from 1 to 3600000",
}


@pytest.mark.parametrize("model", FAILURES)
def test_a_load_fails_by_name_and_leaves_the_others(controlled, model):
    answer = control(controlled, "load", model)
    assert answer.status_code == 400
    assert re.search(FAILURES[model], answer.json()["error"].replace('\\"', '"')), answer.text
    assert not ready(controlled, model) and ready(controlled, "tensorrt_llm")
    infer(controlled, "tensorrt_llm")


def test_an_unload_waits_for_what_runs(controlled):
    assert control(controlled, "load", "two_instances").status_code == 200
    with client_grpc.InferenceServerClient(controlled.grpc) as client, Stream(client) as stream:
        stream.send(
            "", llm_inputs(controlled, STORY, 60, streaming=True), model="two_instances", enable_empty_final_response=True
        )
        assert stream.receive()[1] is None
        assert control(controlled, "unload", "two_instances").status_code == 200
        rest = stream.receive_until_final()
    assert 1 + sum(result.as_numpy("output_ids") is not None for result in rest) == 60
    wait_for_unloads(controlled)


def speech(server, num_chunks):
    ids = client_grpc.InferInput("ids", [1, len(token_ids(server, STORY))], "INT32")
    ids.set_data_from_numpy(np.array([token_ids(server, STORY)], np.int32))
    count = client_grpc.InferInput("num_chunks", [1, 1], "INT32")
    count.set_data_from_numpy(np.array([[num_chunks]], np.int32))
    with client_grpc.InferenceServerClient(server.grpc) as client, Stream(client) as stream:
        stream.send("", [ids, count], model="speech", enable_empty_final_response=True)
        results = stream.receive_until_final()
    return [result.as_numpy("chunk").reshape(-1).tolist() for result in results if result.get_response().outputs]


def test_a_python_model_streams_stops_early_and_cancels(controlled):
    assert control(controlled, "load", "speech").status_code == 200
    alone = [int(each["output_ids"].reshape(-1)[0]) for each in responses(controlled, llm_inputs(controlled, STORY, 20, True))]
    chunks = speech(controlled, 5)
    assert [token for chunk in chunks for token in chunk] == alone
    before = samples(controlled, "nv_inference_count")
    assert speech(controlled, 2) == chunks[:2]
    wait_until_idle(controlled)  # the rest of 900 tokens is not computed
    assert kv_blocks(controlled) == 0 and samples(controlled, "nv_inference_count") != before
