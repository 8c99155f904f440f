# SPDX-License-Identifier: Apache-2.0
"""The HTTP front end of a live server, seen by tritonclient, requests and curl; `tokenizers` is the oracle of ids."""

import concurrent.futures
import gzip
import http.client
import json
import subprocess

import numpy as np
import pytest
import requests
import tritonclient.http as triton
from live_server import start_server, without_gpu
from llm_client import events, kv_blocks, open_http_stream, stream_http, wait_until, wait_until_idle
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException

MODELS = ("ensemble", "postprocessing", "preprocessing", "tensorrt_llm")
PROMPT = "The little robot walked to the river"


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.http) as c:
        yield c


def url(server, path):
    return f"http://{server.http}/{path}"


def generate(server, model="ensemble", **values):
    return requests.post(url(server, f"v2/models/{model}/generate"), json=values, timeout=120)


def text_tensor(name, text):
    tensor = triton.InferInput(name, [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text.encode()]], dtype=object))
    return tensor


def int_tensor(name, value):
    tensor = triton.InferInput(name, [1, 1], "INT32")
    tensor.set_data_from_numpy(np.array([[value]], dtype=np.int32))
    return tensor


# --- health, metadata, configuration, index, statistics ---


def test_live_ready_and_models_ready(client):
    assert client.is_server_live() and client.is_server_ready()
    assert all(client.is_model_ready(m) and client.is_model_ready(m, "1") for m in MODELS)
    assert not client.is_model_ready("nosuch")
    assert not client.is_model_ready("ensemble", "7")


def test_server_metadata(client):
    metadata = client.get_server_metadata()
    assert metadata["name"] == "triton"
    assert {"binary_tensor_data", "statistics", "model_configuration"} <= set(metadata["extensions"])


def test_model_metadata_shows_types_and_batch_dimension(client):
    metadata = client.get_model_metadata("ensemble")
    assert metadata["versions"] == ["1"] and metadata["platform"] == "ensemble"
    inputs = {i["name"]: (i["datatype"], i["shape"]) for i in metadata["inputs"]}
    assert inputs["text_input"] == ("BYTES", [-1, -1])
    assert inputs["temperature"] == ("FP32", [-1, 1])
    assert "text_output" in {o["name"] for o in metadata["outputs"]}


def test_configuration_has_what_load_generators_read(client):
    config = client.get_model_config("ensemble")
    assert config["max_batch_size"] > 0
    assert config["model_transaction_policy"]["decoupled"] is True
    assert [step["model_name"] for step in config["ensemble_scheduling"]["step"]] == [
        "preprocessing", "tensorrt_llm", "postprocessing",
    ]  # fmt: skip
    assert all(type(step["model_version"]) is int for step in config["ensemble_scheduling"]["step"])
    for tensor in config["input"]:
        assert all(type(dim) is int for dim in tensor["dims"]) and tensor["data_type"].startswith("TYPE_")
        assert {"optional", "is_shape_tensor"} <= tensor.keys()


def test_index_lists_the_four_models(client):
    assert [(m["name"], m["version"], m["state"]) for m in client.get_model_repository_index()] == [
        (name, "1", "READY") for name in MODELS
    ]


def test_statistics_count_requests(server, client):
    before = client.get_inference_statistics("ensemble")["model_stats"][0]
    assert generate(server, text_input=PROMPT, max_tokens=2).status_code == 200
    after = client.get_inference_statistics("ensemble", "1")["model_stats"][0]
    assert after["inference_stats"]["success"]["count"] == before["inference_stats"]["success"]["count"] + 1
    assert after["inference_stats"]["success"]["ns"] > before["inference_stats"]["success"]["ns"]
    assert after["last_inference"] >= before["last_inference"] > 0 or before["last_inference"] == 0
    assert {m["name"] for m in client.get_inference_statistics()["model_stats"]} == set(MODELS)


# --- infer ---


@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
def test_infer_tokenizes_like_the_tokenizers_package(server, client, binary_in, binary_out):
    text = "What is 12 + 30? ünïcode ☃"
    query = triton.InferInput("QUERY", [1, 1], "BYTES")
    query.set_data_from_numpy(np.array([[text.encode()]], dtype=object), binary_data=binary_in)
    length = triton.InferInput("REQUEST_OUTPUT_LEN", [1, 1], "INT32")
    length.set_data_from_numpy(np.array([[9]], dtype=np.int32), binary_data=binary_in)
    wanted = [triton.InferRequestedOutput(n, binary_data=binary_out) for n in ("INPUT_ID", "REQUEST_OUTPUT_LEN")]
    result = client.infer("preprocessing", [query, length], outputs=wanted, request_id="my id")
    expected = Tokenizer.from_file(str(server.model_dir / "tokenizer.json")).encode(text).ids
    assert result.as_numpy("INPUT_ID").reshape(-1).tolist() == expected
    assert result.as_numpy("REQUEST_OUTPUT_LEN").reshape(-1).tolist() == [9]
    assert result.get_response()["id"] == "my id"
    assert {o["name"] for o in result.get_response()["outputs"]} == {"INPUT_ID", "REQUEST_OUTPUT_LEN"}


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_infer_with_compression_both_ways(client, algorithm):
    inputs = [text_tensor("QUERY", PROMPT), int_tensor("REQUEST_OUTPUT_LEN", 3)]
    plain = client.infer("preprocessing", inputs).as_numpy("INPUT_ID")
    packed = client.infer(
        "preprocessing", inputs, request_compression_algorithm=algorithm, response_compression_algorithm=algorithm
    )
    assert packed.as_numpy("INPUT_ID").tolist() == plain.tolist()


def write_repository(path, server, decoupled):
    """The four models over the demo model, as a repository with the tensors that the server itself describes."""
    model_dir = server.model_dir
    settings = {
        "tensorrt_llm": f'backend: "tensorrtllm"\nmodel_transaction_policy {{ decoupled: {decoupled} }}\n'
        + parameter("gpt_model_path", model_dir) + parameter("gpt_model_type", "inflight_fused_batching"),
        "preprocessing": 'backend: "python"\n' + parameter("tokenizer_dir", model_dir),
        "postprocessing": 'backend: "python"\n' + parameter("tokenizer_dir", model_dir),
        "ensemble": 'platform: "ensemble"',
    }  # fmt: skip
    for name, text in settings.items():
        described = requests.get(url(server, f"v2/models/{name}/config"), timeout=30).json()
        lines = [f'name: "{name}"', "max_batch_size: 8", text]
        lines += [io_text(kind, tensor) for kind in ("input", "output") for tensor in described[kind]]
        steps = [step_text(step) for step in described.get("ensemble_scheduling", {}).get("step", [])]
        lines += [f"ensemble_scheduling {{ {' '.join(steps)} }}"] if steps else []
        version = path / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").touch()
        (version.parent / "config.pbtxt").write_text("\n".join(lines))
    return path


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def io_text(kind, tensor):
    optional = " optional: true" if tensor.get("optional") else ""
    return f'{kind} {{ name: "{tensor["name"]}" data_type: {tensor["data_type"]} dims: {tensor["dims"]}{optional} }}'


def step_text(step):
    maps = "".join(
        f'{kind} {{ key: "{key}" value: "{value}" }} '
        for kind in ("input_map", "output_map")
        for key, value in step[kind].items()
    )
    return f'step {{ model_name: "{step["model_name"]}" model_version: -1 {maps} }}'


def infer_ensemble(server, text, max_tokens):
    with triton.InferenceServerClient(server.http) as client:
        result = client.infer("ensemble", [text_tensor("text_input", text), int_tensor("max_tokens", max_tokens)])
    return result.as_numpy("text_output").reshape(-1)[0].decode()


def test_infer_of_the_ensemble_says_what_generate_says(server):
    assert infer_ensemble(server, PROMPT, 12) == generate(server, text_input=PROMPT, max_tokens=12).json()["text_output"]


def test_repository_with_single_response_models_serves_infer(tmp_path, server):
    repository = write_repository(tmp_path / "repository", server, decoupled="False")
    running = start_server(tmp_path, None, "--model-repository", repository)
    assert infer_ensemble(running, PROMPT, 12) == generate(running, text_input=PROMPT, max_tokens=12).json()["text_output"]
    assert running.stop() == 0


def test_infer_cannot_stream(server, client):
    stream = triton.InferInput("stream", [1, 1], "BOOL")
    stream.set_data_from_numpy(np.array([[True]]))
    inputs = [text_tensor("text_input", PROMPT), int_tensor("max_tokens", 12), stream]
    with pytest.raises(InferenceServerException, match="single response"):
        client.infer("ensemble", inputs)


# --- generate, generate_stream ---


def test_generate_answers_with_one_object(server):
    response = generate(server, text_input=PROMPT, max_tokens=8, bad_words="", stop_words="")
    assert response.status_code == 200 and response.headers["Content-Type"] == "application/json"
    body = response.json()
    assert body["model_name"] == "ensemble" and body["model_version"] == "1" and body["text_output"]
    assert list(body) == sorted(body)


def test_documented_curl_line_works(server):
    body = '{"text_input": "What is machine learning?", "max_tokens": 20, "bad_words": "", "stop_words": ""}'
    out = subprocess.run(
        ["curl", "-sS", "-X", "POST", url(server, "v2/models/ensemble/generate"), "-d", body],
        check=True, capture_output=True, timeout=60,
    ).stdout  # fmt: skip
    assert json.loads(out)["text_output"]


@pytest.mark.parametrize("values", [
    {"max_tokens": 40},
    {"max_tokens": 25, "temperature": 0.9, "top_k": 30, "random_seed": 5},
    {"max_tokens": 1},
], ids=["greedy", "sampled", "one token"])  # fmt: skip
def test_chunks_concatenate_to_the_whole_text(server, values):
    whole = generate(server, text_input=PROMPT, **values).json()["text_output"]
    chunks = stream_http(server, text_input=PROMPT, **values)
    assert "".join(chunks) == whole
    assert all("\N{REPLACEMENT CHARACTER}" not in chunk for chunk in chunks)


def test_stream_is_server_sent_events(server):
    with open_http_stream(server, text_input=PROMPT, max_tokens=3, id="r-1") as response:
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        raw = b"".join(response.iter_content(None))
    parts = raw.split(b"\n\n")
    assert parts.pop() == b"" and all(part.startswith(b"data: {") for part in parts)
    assert all(json.loads(part[6:])["id"] == "r-1" for part in parts)


def test_parameters_may_stand_in_an_object_of_their_own(server):
    flat = generate(server, text_input=PROMPT, max_tokens=5).json()["text_output"]
    nested = generate(server, text_input=PROMPT, parameters={"max_tokens": 5}).json()["text_output"]
    assert nested == flat


def test_a_connection_serves_streams_and_requests_in_turn(server):
    with requests.Session() as session:
        for _ in range(3):
            response = session.post(
                url(server, "v2/models/ensemble/generate_stream"),
                json={"text_input": PROMPT, "max_tokens": 4, "stream": True}, timeout=60, stream=True,
            )  # fmt: skip
            assert len(list(events(response))) >= 1
            assert session.get(url(server, "v2/health/live"), timeout=10).status_code == 200


def test_parallel_requests_get_what_each_gets_alone(server):
    prompts = [f"{PROMPT} {i}" for i in range(20)]
    alone = [generate(server, text_input=p, max_tokens=10).json()["text_output"] for p in prompts]
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        together = list(pool.map(lambda p: generate(server, text_input=p, max_tokens=10).json()["text_output"], prompts))
    assert together == alone


@pytest.mark.parametrize("endpoint", ["generate", "generate_stream"])
def test_disconnect_frees_the_kv_blocks(server, endpoint):
    wait_until_idle(server)
    cancelled = failures(server, "tensorrt_llm", "CANCELED")
    connection = http.client.HTTPConnection(server.http, timeout=60)
    values = {"text_input": PROMPT, "max_tokens": 900, "end_id": -1, "stream": endpoint == "generate_stream"}
    connection.request("POST", f"/v2/models/ensemble/{endpoint}", json.dumps(values))
    wait_until(lambda: kv_blocks(server) > 0)
    connection.close()
    wait_until_idle(server)
    wait_until(lambda: failures(server, "tensorrt_llm", "CANCELED") > cancelled)
    assert failures(server, "tensorrt_llm", "CANCELED") == cancelled + 1


# --- metrics ---


def samples(server):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30)
    assert page.headers["Content-Type"] == "text/plain; charset=utf-8"
    lines = [line.rsplit(" ", 1) for line in without_gpu(page.text).splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def failures(server, model, reason):
    return samples(server)[f'nv_inference_request_failure{{model="{model}",reason="{reason}",version="1"}}']


def test_metrics_count_what_happened(server):
    before = samples(server)
    chunks = stream_http(server, text_input=PROMPT, max_tokens=10, end_id=-1)
    after = samples(server)

    def delta(name):
        return after[name] - before[name]

    for model in MODELS:
        assert delta(f'nv_inference_request_success{{model="{model}",version="1"}}') >= 1
        assert delta(f'nv_inference_count{{model="{model}",version="1"}}') >= 1
    llm = 'model="tensorrt_llm",version="1"'
    assert delta(f"nv_inference_request_success{{{llm}}}") == 1
    assert delta(f"nv_inference_request_duration_us{{{llm}}}") > 0
    assert delta(f"nv_inference_compute_infer_duration_us{{{llm}}}") > 0
    assert delta(f"inflight_time_to_first_token_ms_count{{{llm}}}") == 1
    assert delta(f"inflight_inter_token_ms_count{{{llm}}}") == 9
    assert delta(f"inflight_step_ms_count{{{llm}}}") >= 10
    assert delta(f"inflight_tokens_generated_total{{{llm}}}") == 10
    assert delta(f"inflight_queue_ms_count{{{llm}}}") == 1
    assert len(chunks) >= 1


def test_metrics_page_parses_as_prometheus_text(server):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    kinds = {}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            name = line.split("{")[0].split(" ")[0]
            family = next((f for f in (name, name.rsplit("_", 1)[0]) if f in kinds), None)
            assert family, f"sample without TYPE: {line}"
    assert kinds["nv_inference_request_success"] == "counter"
    assert kinds["nv_inference_pending_request_count"] == "gauge"
    assert kinds["inflight_time_to_first_token_ms"] == "histogram"
    assert kinds["nv_trt_llm_kv_cache_block_metrics"] == "gauge"


# --- stop ---


def test_sigterm_lets_streams_finish(tmp_path):
    running = start_server(tmp_path)
    with open_http_stream(running, text_input=PROMPT, max_tokens=150, end_id=-1) as response:
        stream = events(response)
        texts = [next(stream)["text_output"]]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(running.stop)
            texts += [event["text_output"] for event in stream]
            assert stopped.result() == 0
    again = start_server(tmp_path_again(tmp_path))
    whole = generate(again, text_input=PROMPT, max_tokens=150, end_id=-1).json()["text_output"]
    assert again.stop() == 0
    assert "".join(texts) == whole
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(url(running, "v2/health/live"), timeout=5)


def tmp_path_again(tmp_path):
    path = tmp_path / "again"
    path.mkdir()
    return path


def test_gzip_body_of_infer_is_bounded_when_unpacked(server):
    bomb = gzip.compress(b" " * (80 << 20))
    response = requests.post(
        url(server, "v2/models/preprocessing/infer"), data=bomb, headers={"Content-Encoding": "gzip"}, timeout=60
    )
    assert response.status_code == 400 and "--http-max-input-size" in response.json()["error"]
