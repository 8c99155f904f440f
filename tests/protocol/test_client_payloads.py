# SPDX-License-Identifier: Apache-2.0
"""What ready-made clients send, byte for byte in its shape, against the release that each was written for.

Each test names the public source that its request is taken from. The demo model's exact answers are the oracle of texts.
"""

import re

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEMO, start_server
from llm_client import Stream, events, is_final, text_of
from release_repositories import config_texts, fill_template, write_repository
from test_repositories import ANSWER, END_ID, PROMPT
from tokenizers import Tokenizer

FILLED = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "True", "exclude_input_in_output": "True"}


def serve(tmp_path_factory, name, write):
    path = tmp_path_factory.mktemp(name)
    return start_server(path, None, "--model-repository", write(path / "repository"))


@pytest.fixture(scope="module")
def first_release(tmp_path_factory):
    """0.6, whose scalars are UINT32."""
    running = serve(tmp_path_factory, "r6", lambda root: write_repository(root, 6, **FILLED))
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def release_11(tmp_path_factory):
    running = serve(tmp_path_factory, "r11", lambda root: write_repository(root, 11, **FILLED))
    yield running
    assert running.stop() == 0


def endpoint(server, action, model="ensemble"):
    return f"http://{server.http}/v2/models/{model}/{action}"


# --- litellm: litellm/llms/triton/completion/transformation.py of BerriAI/litellm ---


def litellm_body(stream):
    return {
        "text_input": PROMPT,
        "parameters": {"max_tokens": 24, "bad_words": [""], "stop_words": [""]},
        "stream": stream,
    }


def test_litellm_generates(release_11):
    answer = requests.post(endpoint(release_11, "generate"), json=litellm_body(stream=False), timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["text_output"].strip() == ANSWER


def test_litellm_streams(release_11):
    with requests.post(
        endpoint(release_11, "generate_stream"), json=litellm_body(stream=True), stream=True, timeout=60
    ) as answer:
        chunks = list(events(answer))
    assert "".join(chunk["text_output"] for chunk in chunks).strip() == ANSWER
    assert len(chunks) > 3


# --- SGLang: python/sglang/bench_serving.py of sgl-project/sglang, --backend trt ---


def test_sglang_measures_without_an_end(release_11):
    """An end id that no vocabulary has ends nothing: the answer is as long as it was asked to be."""
    body = {
        "accumulate_tokens": True, "text_input": PROMPT, "temperature": 0.000001, "top_p": 1.0, "max_tokens": 24, "stream": True,
        "min_length": 24, "end_id": 1048576,
    }  # fmt: skip
    with requests.post(endpoint(release_11, "generate_stream"), json=body, stream=True, timeout=60) as answer:
        assert answer.status_code == 200
        chunks = list(events(answer))
    assert not [chunk for chunk in chunks if "error" in chunk], chunks
    text = "".join(chunk["text_output"] for chunk in chunks).strip()
    assert text.startswith(ANSWER), "the likeliest token each time: at this temperature nothing else is drawn"
    lengths = {**body, "stream": False, "return_log_probs": True}
    whole = requests.post(endpoint(release_11, "generate"), json=lengths, timeout=60).json()
    assert len(whole["output_log_probs"]) == 24


def test_a_later_release_refuses_such_an_end(tmp_path):
    server = start_server(tmp_path, None, "--model-repository", write_repository(tmp_path / "repository", 19, **FILLED))
    body = {"text_input": PROMPT, "max_tokens": 4, "end_id": 1048576}
    answer = requests.post(endpoint(server, "generate"), json=body, timeout=60)
    assert (answer.status_code, "is not within vocabulary range" in answer.text) == (400, True)
    assert server.stop() == 0


# --- langchain: libs/trt/langchain_nvidia_trt/llms.py of langchain-ai/langchain-nvidia, for 0.5 and 0.6; llama-index:
# --- llama-index-llms-nvidia-triton of run-llama/llama_index, which sends the same tensors as INT32, for 0.7 on ---


def connector_inputs(prompt, stream, tokens=24, names=None, integer=np.uint32):
    rows = {
        "text_input": np.array([[prompt]], dtype=object),
        "max_tokens": np.array([[tokens]], integer),
        "top_k": np.array([[1]], integer),
        "top_p": np.array([[0]], np.float32),
        "temperature": np.array([[1.0]], np.float32),
        "length_penalty": np.array([[1.0]], np.float32),
        "repetition_penalty": np.array([[1]], np.float32),
        "random_seed": np.array([[42]], np.uint64),
        "beam_width": np.array([[1]], integer),
        "stream": np.array([[stream]], dtype=bool),
    }
    datatypes = {"object": "BYTES", "uint32": "UINT32", "int32": "INT32", "float32": "FP32", "uint64": "UINT64", "bool": "BOOL"}
    inputs = []
    for name, values in rows.items():
        tensor = triton.InferInput((names or {}).get(name, name), [1, 1], datatypes[values.dtype.name])
        tensor.set_data_from_numpy(values)
        inputs.append(tensor)
    return inputs


def stop_signals():
    """Sent behind the last token, to the ensemble, which has none of these."""
    values = {
        "input_ids": np.zeros([1, 1], np.int32), "input_lengths": np.zeros([1, 1], np.int32),
        "request_output_len": np.array([[0]], np.uint32), "stop": np.array([[True]]),
    }  # fmt: skip
    datatypes = {"input_ids": "INT32", "input_lengths": "INT32", "request_output_len": "UINT32", "stop": "BOOL"}
    inputs = []
    for name, value in values.items():
        tensor = triton.InferInput(name, [1, 1], datatypes[name])
        tensor.set_data_from_numpy(value)
        inputs.append(tensor)
    return inputs


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("server_of", "integer"), [("first_release", np.uint32), ("release_11", np.int32)])
def test_connectors_of_langchain_and_llama_index(request, server_of, integer, stream):
    server = request.getfixturevalue(server_of)
    with triton.InferenceServerClient(server.grpc) as client, Stream(client) as s:
        assert client.is_model_ready("ensemble")
        asked = [triton.InferRequestedOutput("text_output")]
        s.send("4711", connector_inputs(PROMPT, stream, integer=integer), outputs=asked)
        text, last = "", False
        while not last:
            result, error = s.receive()
            assert error is None
            last = is_final(result)  # in every answer, asked for or not
            if result.get_response().outputs:
                text += text_of(result)
        assert text.strip().startswith(ANSWER)
        s.send("4711", stop_signals(), parameters={"Streaming": True})
        result, error = s.receive()
        assert result is None and "input_ids" in error.message()
        s.send("4712", connector_inputs(PROMPT, stream=False, integer=integer), outputs=asked)  # the stream goes on
        result, error = s.receive()
        assert error is None and text_of(result).strip().startswith(ANSWER)


# --- NeMo Guardrails: nemoguardrails/llm/providers/trtllm/client.py of NVIDIA/NeMo-Guardrails ---

GUARDRAILS = {
    "text_input": "INPUT_0", "max_tokens": "INPUT_1", "top_k": "runtime_top_k", "top_p": "runtime_top_p",
    "length_penalty": "len_penalty", "stream": "streaming", "text_output": "OUTPUT_0",
}  # fmt: skip


def write_guardrails_repository(root):
    """0.6 with an ensemble whose tensors have the names that this client was written for."""
    write_repository(root, 6, **FILLED)
    text = fill_template(config_texts(6)["ensemble"], **FILLED)
    for name, other in GUARDRAILS.items():
        text = re.sub(rf'((?:name|value): )"{name}"', rf'\1"{other}"', text)
    (root / "ensemble" / "config.pbtxt").write_text(text)
    return root


def test_nemo_guardrails(tmp_path_factory):
    server = serve(tmp_path_factory, "guardrails", write_guardrails_repository)
    with triton.InferenceServerClient(server.grpc) as client:
        index = client.get_model_repository_index(as_json=True)
        assert "ensemble" in [model["name"] for model in index["models"]]
        with Stream(client) as s:
            inputs = connector_inputs(PROMPT, stream=True, names=GUARDRAILS)
            s.send("", inputs, outputs=[triton.InferRequestedOutput("OUTPUT_0")], enable_empty_final_response=True)
            results = s.receive_until_final()
    texts = [result.as_numpy("OUTPUT_0").reshape(-1)[0].decode() for result in results if result.get_response().outputs]
    assert "".join(texts).strip().startswith(ANSWER)
    assert server.stop() == 0


# --- genai-perf: genai_perf/inputs/converters/tensorrtllm{,_engine}_converter.py of triton-inference-server/perf_analyzer ---


def test_genai_perf_of_the_ensemble(release_11):
    inputs = []
    for name, datatype, value in [
        ("text_input", "BYTES", np.array([[PROMPT]], dtype=object)),
        ("max_tokens", "INT32", np.array([[24]], np.int32)),
        ("min_length", "INT32", np.array([[24]], np.int32)),
        ("stream", "BOOL", np.array([[True]])),
    ]:
        inputs.append(triton.InferInput(name, [1, 1], datatype))
        inputs[-1].set_data_from_numpy(value)
    with triton.InferenceServerClient(release_11.grpc) as client, Stream(client) as s:
        s.send("1", inputs, enable_empty_final_response=True)
        results = s.receive_until_final()
    assert "".join(text_of(r) for r in results if r.get_response().outputs).strip().startswith(ANSWER)


def test_genai_perf_of_the_engine(release_11):
    ids = Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(PROMPT).ids
    inputs = []
    for name, datatype, value in [
        ("input_ids", "INT32", np.array([ids], np.int32)),
        ("input_lengths", "INT32", np.array([[len(ids)]], np.int32)),
        ("request_output_len", "INT32", np.array([[256]], np.int32)),
        ("min_length", "INT32", np.array([[8]], np.int32)),
        ("end_id", "INT32", np.array([[END_ID]], np.int32)),
        ("streaming", "BOOL", np.array([[True]])),
    ]:
        inputs.append(triton.InferInput(name, list(value.shape), datatype))
        inputs[-1].set_data_from_numpy(value)
    with triton.InferenceServerClient(release_11.grpc) as client, Stream(client) as s:
        s.send("1", inputs, model="tensorrt_llm", enable_empty_final_response=True)
        results = s.receive_until_final()
    tokens = [r.as_numpy("output_ids").size for r in results if r.get_response().outputs]
    assert sum(tokens) >= 8


def test_benchmarks_send_ids_that_no_vocabulary_has(release_11):
    """The back-end's own benchmark of the core model draws them up to a bound of its own."""
    inputs = []
    for name, value in [("input_ids", [3, 1_000_000, -5]), ("input_lengths", [3]), ("request_output_len", [4])]:
        inputs.append(triton.InferInput(name, [1, len(value)], "INT32"))
        inputs[-1].set_data_from_numpy(np.array([value], np.int32))
    with triton.InferenceServerClient(release_11.grpc) as client:
        result = client.infer("tensorrt_llm", inputs)
    assert result.as_numpy("output_ids").size == 4
    assert "ids of input_ids are not in the vocabulary" in release_11.log.read_text()


# --- Gateway API inference extension and llm-d: the pairs of name and label that their presets for Triton read ---

ROUTERS_READ = {
    ("nv_trt_llm_request_metrics", "request_type", "waiting"),
    ("nv_trt_llm_request_metrics", "request_type", "scheduled"),
    ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction"),
    ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "tokens_per"),
    ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "max"),
}


def test_routers_find_their_metrics(first_release, release_11, server):
    for each in (first_release, release_11, server):
        page = requests.get(f"http://{each.metrics}/metrics", timeout=30).text
        for family, label, value in ROUTERS_READ:
            (number,) = re.findall(rf'^{family}\{{[^}}]*\b{label}="{value}"[^}}]*\}} (\S+)$', page, re.MULTILINE)
            assert re.fullmatch(r"0|[1-9]\d*|0\.\d*[1-9]", number), "no zeros behind a point: scripts read whole numbers"
