# SPDX-License-Identifier: Apache-2.0
"""Model repositories of upstream's releases, served as they are; the demo model's exact answers are the oracle of texts."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
import tritonclient.http
from live_server import DEMO, DEVICE, serving, without_gpu
from llm_client import Stream, events, kv_blocks, text_of
from release_repositories import LLM_OUTPUTS, RELEASES, TEXT_OUTPUTS, names, write_repository
from server_log import messages
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
EXAMPLES = json.loads((DEMO / "demo_requests.json").read_text())
PROMPT, ANSWER = EXAMPLES[0]["text_input"], EXAMPLES[0]["expected"]
END_ID = json.loads((DEMO / "generation_config.json").read_text())["eos_token_id"]
END_ID = END_ID[0] if isinstance(END_ID, list) else END_ID
FILLED = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "True"}
WORDS = {"bad_words": "", "stop_words": ""}  # required by 0.5, sent by old clients ever since


def url(server, model, action):
    return f"http://{server.http}/v2/models/{model}/{action}"


def generate(server, model, **values):
    response = requests.post(url(server, model, "generate"), json={**WORDS, **values}, timeout=60)
    return response.json()


def generate_stream(server, model, **values):
    body = {**WORDS, **values, "stream": True}
    with requests.post(url(server, model, "generate_stream"), json=body, stream=True, timeout=60) as response:
        return list(events(response))


def question(release=11, **more):
    """A request whose answer is known. Up to 0.7 the end id is the client's business."""
    return {"text_input": PROMPT, "max_tokens": 24, **({"end_id": END_ID} if release < 8 else {}), **more}


def typed_inputs(client, model, **values):
    """Tensors of shape [1, n] in the datatypes that the model's metadata states."""
    types = {i["name"]: i["datatype"] for i in client.get_model_metadata(model, as_json=True)["inputs"]}
    inputs = []
    for name, value in values.items():
        row = value if isinstance(value, list) else [value]
        row = [v.encode() if isinstance(v, str) else v for v in row]
        tensor = triton.InferInput(name, [1, len(row)], types[name])
        tensor.set_data_from_numpy(np.array([row], dtype=triton_to_np_dtype(types[name])))
        inputs.append(tensor)
    return inputs


# --- releases ---


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_is_served_as_it_is(tmp_path, release):
    repository = write_repository(tmp_path / "repository", release, **FILLED)
    pipelines = ["ensemble"] + (["tensorrt_llm_bls"] if release >= 7 else [])
    has_zeros = release <= 13
    with serving(tmp_path, repository) as server:
        assert requests.get(f"http://{server.http}/v2/health/ready", timeout=30).status_code == 200
        for model in pipelines:
            whole = generate(server, model, **question(release))
            assert whole["text_output"] == f"{PROMPT} {ANSWER}"
            tensors = set(whole) - {"model_name", "model_version", "sequence_id", "sequence_start", "sequence_end"}
            assert tensors == (set(names(TEXT_OUTPUTS, release)) if has_zeros else {"text_output"})
            assert ("sequence_id" in whole) == (model == "ensemble")
            chunks = generate_stream(server, model, **question(release))
            assert len(chunks) > 3
            assert "".join(c["text_output"] for c in chunks).strip() == ANSWER
        check_over_grpc(server, release, has_zeros)


def check_over_grpc(server, release, has_zeros):
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    prompt_ids = tokenizer.encode(PROMPT, add_special_tokens=False).ids
    with triton.InferenceServerClient(server.grpc) as client:
        ids = {"input_ids": prompt_ids, "input_lengths": len(prompt_ids), "request_output_len": 24, "end_id": END_ID}
        result = client.infer("tensorrt_llm", typed_inputs(client, "tensorrt_llm", **ids))
        outputs = [o.name for o in result.get_response().outputs]
        assert set(outputs) == (set(names(LLM_OUTPUTS, release)) if has_zeros else {"output_ids", "sequence_length"})
        assert outputs[0] == "output_ids"
        answered = result.as_numpy("output_ids").reshape(-1).tolist()
        assert answered[: len(prompt_ids)] == prompt_ids
        assert tokenizer.decode(answered) == f"{PROMPT} {ANSWER}"
        with Stream(client) as stream:
            inputs = typed_inputs(client, "ensemble", **question(release, **WORDS, stream=True))
            stream.send("r", inputs, enable_empty_final_response=True)
            texts = [text_of(r) for r in stream.receive_until_final() if r.get_response().outputs]
        assert "".join(texts).strip() == ANSWER


def test_nothing_filled_and_everything_one_level_deeper(tmp_path):
    """As the oldest walk-throughs leave it: templates unfilled, copied with one folder too many; the engine too."""
    repository = write_repository(tmp_path / "outer" / "inflight_batcher_llm", 11)
    shutil.copytree(DEMO, repository / "tensorrt_llm" / "1" / "1-gpu", ignore=shutil.ignore_patterns("*.py", "*.jsonl"))
    with serving(tmp_path, tmp_path / "outer") as server:
        assert generate(server, "ensemble", **question())["text_output"] == f"{PROMPT} {ANSWER}"
        assert generate(server, "tensorrt_llm_bls", **question())["text_output"] == f"{PROMPT} {ANSWER}"
        refused = generate_stream(server, "ensemble", **question())  # decoupled is false when it is left open
        assert "Streaming is only supported if model is" in refused[0]["error"]


def test_the_llama_walk_through_of_0_10(tmp_path):
    """Filled as that guide fills it, keys that no template of the release has included."""
    fill = {
        **FILLED, "triton_max_batch_size": 64, "preprocessing_instance_count": 1, "postprocessing_instance_count": 1,
        "bls_instance_count": 1, "decoupled_mode": "False", "accumulate_tokens": "False", "triton_backend": "tensorrtllm",
        "max_beam_width": 1, "max_tokens_in_paged_kv_cache": 2560, "max_attention_window_size": 2560,
        "kv_cache_free_gpu_mem_fraction": 0.5, "exclude_input_in_output": "True", "enable_kv_cache_reuse": "False",
        "batching_strategy": "inflight_fused_batching", "max_queue_delay_microseconds": 0, "tokenizer_type": "llama",
    }  # fmt: skip
    with serving(tmp_path, write_repository(tmp_path / "repository", 10, **fill)) as server:
        for model in ("ensemble", "tensorrt_llm_bls"):
            assert generate(server, model, **question(pad_id=END_ID, end_id=END_ID))["text_output"].strip() == ANSWER
            with concurrent.futures.ThreadPoolExecutor(20) as pool:  # as its script does
                answers = pool.map(lambda _, m=model: generate(server, m, **question()), range(20))
            assert {a["text_output"].strip() for a in answers} == {ANSWER}
        config = requests.get(url(server, "tensorrt_llm", "config"), timeout=30).json()
        assert config["max_batch_size"] == 64
        assert config["parameters"]["max_attention_window_size"]["string_value"] == "2560"


# --- what is missing or refused ---


@pytest.mark.parametrize(("missing", "served"), [("tensorrt_llm_bls", "ensemble"), ("ensemble", "tensorrt_llm_bls")])
def test_the_rest_is_served(tmp_path, missing, served):
    repository = write_repository(tmp_path / "repository", 11, without=[missing], **FILLED)
    with serving(tmp_path, repository) as server:
        assert generate(server, served, **question())["text_output"] == f"{PROMPT} {ANSWER}"
        assert "is not found" in generate(server, missing, **question())["error"]


def test_bls_is_refused_by_the_key_and_the_ensemble_is_served(tmp_path):
    key = "multimodal_encoders_name"
    repository = write_repository(tmp_path / "repository", 16, **FILLED, **{key: "vision"})
    with serving(tmp_path, repository) as server:
        index = requests.post(f"http://{server.http}/v2/repository/index", timeout=30).json()
        reasons = {m["name"]: m.get("reason", "") for m in index if m["state"] == "UNAVAILABLE"}
        assert list(reasons) == ["tensorrt_llm_bls"]
        assert key in reasons["tensorrt_llm_bls"]
        assert generate(server, "ensemble", **question())["text_output"] == f"{PROMPT} {ANSWER}"


def test_bls_finds_its_members_at_each_request(tmp_path):
    """In the order of a deployment that loads the BLS first, and takes a member away and back again."""
    repository = write_repository(tmp_path / "repository", 11, **{**FILLED, "decoupled_mode": "False"})
    options = ("--model-control-mode=explicit", "--load-model=tensorrt_llm_bls")
    with serving(tmp_path, repository, *options) as server:
        assert requests.get(f"http://{server.http}/v2/models/tensorrt_llm_bls/ready", timeout=30).status_code == 200
        with tritonclient.http.InferenceServerClient(server.http) as client:
            for model in ("tensorrt_llm", "preprocessing", "postprocessing"):
                answer = requests.post(url(server, "tensorrt_llm_bls", "generate"), json=question(), timeout=60)
                assert answer.status_code == 503 and "is not ready" in answer.json()["error"]
                client.load_model(model)
            assert generate(server, "tensorrt_llm_bls", **question())["text_output"] == f"{PROMPT} {ANSWER}"
            client.unload_model("postprocessing")
            assert "Model 'postprocessing' is not ready" in generate(server, "tensorrt_llm_bls", **question())["error"]
            client.load_model("postprocessing")
        assert generate(server, "tensorrt_llm_bls", **question())["text_output"] == f"{PROMPT} {ANSWER}"


@pytest.mark.parametrize(
    ("fill", "text"),
    [
        ({"batching_strategy": "INVALID"}, "Invalid gpt_model_type"),
        (
            {"max_attention_window_size": 16, "sink_token_length": 16},
            "sink_token_length: got 16, must be below max_attention_window_size, which is 16",
        ),
        ({"encoder_engine_dir": "/enc"}, "encoder_model_path '/enc' is not supported; leave it out"),
        ({"engine_dir": "/no/such/engine"}, "gpt_model_path: '/no/such/engine' does not exist"),
        ({"tokenizer_dir": "/no/such/tokenizer"}, "tokenizer_dir '/no/such/tokenizer'"),
    ],
)
def test_what_cannot_be_done_ends_the_start_by_name(tmp_path, fill, text):
    repository = write_repository(tmp_path / "repository", 11, **{**FILLED, **fill})
    command = [INFLIGHT, "serve", "--model-repository", repository, "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert text in done.stderr
    inspected = subprocess.run([INFLIGHT, "inspect", repository], capture_output=True, text=True, timeout=60, check=False)
    assert inspected.returncode != 0
    assert text in inspected.stdout


# --- BLS ---


@pytest.fixture(scope="module")
def bls(tmp_path_factory):
    path = tmp_path_factory.mktemp("bls")
    with serving(path, write_repository(path / "repository", 11, **FILLED, exclude_input_in_output="True")) as server:
        yield server


def test_bls_equals_the_ensemble(bls):
    for example in EXAMPLES[:-1]:  # the last is a long story
        request = {"text_input": example["text_input"], "max_tokens": example["max_tokens"], "return_log_probs": True}
        ensemble, answer = (generate(bls, model, **request) for model in ("ensemble", "tensorrt_llm_bls"))
        if "expected" in example:
            assert answer["text_output"].strip() == example["expected"]
        for name in names(TEXT_OUTPUTS, 11):
            assert answer[name] == ensemble[name]


def test_bls_forwards_temperature_and_seed(bls):
    request = {"text_input": "Tell me a story about a fox.", "max_tokens": 30, "top_k": 50, "random_seed": 7}
    cold, hot = (generate(bls, "tensorrt_llm_bls", temperature=t, **request)["text_output"] for t in (0.05, 3.0))
    assert cold != hot  # upstream up to 0.12 drops it
    assert generate(bls, "tensorrt_llm_bls", temperature=3.0, **request)["text_output"] == hot
    assert generate(bls, "ensemble", temperature=3.0, **request)["text_output"] == hot


def test_bls_checks_requests_in_upstreams_words(bls):
    for values, text in [
        ({"text_input": ""}, "text_input is required"),
        ({"max_tokens": 0}, "max_tokens must be a single value > 0"),
        ({"num_draft_tokens": 4}, "cannot perform speculative decoding without draft model"),
        ({"num_draft_tokens": -1}, "num_draft_tokens: got -1, must be at least 0"),
        ({"beam_width": 17}, "Requested beam width 17 is larger than configured max beam width 16"),
        ({"embedding_bias_words": ["fox", "hen"], "embedding_bias_weights": 1.0}, "must have the same dimension"),
        ({"decoder_text_input": "fox"}, "decoder_text_input is not supported; leave it out or send it empty"),
    ]:
        error = generate(bls, "tensorrt_llm_bls", **question(**values))["error"]
        assert text in error
        assert "in ensemble" not in error
    neutral = {"num_draft_tokens": 0, "use_draft_logits": False, "beam_width": 1, "embedding_bias_words": ""}
    assert generate(bls, "tensorrt_llm_bls", **question(**neutral))["text_output"].strip() == ANSWER


def test_bls_ends_a_stream_apart(bls):
    with triton.InferenceServerClient(bls.grpc) as client, Stream(client) as stream:
        inputs = typed_inputs(client, "tensorrt_llm_bls", **question(stream=True))
        stream.send("b-1", inputs, model="tensorrt_llm_bls", enable_empty_final_response=True)
        results = stream.receive_until_final()
        assert not results[-1].get_response().outputs
        assert all(r.get_response().outputs for r in results[:-1])
        assert "".join(text_of(r) for r in results[:-1]).strip() == ANSWER
        # The same as one call with one answer.
        result = client.infer("tensorrt_llm_bls", typed_inputs(client, "tensorrt_llm_bls", **question()), request_id="b-2")
        assert text_of(result).strip() == ANSWER
        assert result.get_response().id == "b-2"
        with pytest.raises(InferenceServerException, match="num_draft_tokens"):
            client.infer("tensorrt_llm_bls", typed_inputs(client, "tensorrt_llm_bls", **question(num_draft_tokens=2)))


def test_rows_have_the_texts_that_each_has_alone(bls):
    rows = [question(), {"text_input": "The", "max_tokens": 3}]
    body = {
        "inputs": [
            {"name": "text_input", "shape": [2, 1], "datatype": "BYTES", "data": [row["text_input"] for row in rows]},
            {"name": "max_tokens", "shape": [2, 1], "datatype": "INT32", "data": [row["max_tokens"] for row in rows]},
        ]
    }
    for model in ("ensemble", "tensorrt_llm_bls"):
        answer = requests.post(url(bls, model, "infer"), json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        outputs = {output["name"]: output for output in answer.json()["outputs"]}
        assert outputs["text_output"]["shape"] == [2]
        assert outputs["text_output"]["data"] == [generate(bls, model, **row)["text_output"] for row in rows]


# --- several models ---


def test_two_pipelines_in_one_server(tmp_path):
    """Of two releases, each with its own engine, tokenizer, texts and share of memory."""
    root = tmp_path / "repository"
    write_repository(root, 11, **FILLED, max_tokens_in_paged_kv_cache=12800)
    second = {**FILLED, "kv_cache_free_gpu_mem_fraction": 0.25, "exclude_input_in_output": "True"}
    write_repository(root, 8, suffix="_2", without=["tensorrt_llm_bls"], **second, max_tokens_in_paged_kv_cache=6400)
    with serving(tmp_path, root) as server:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            models = ["ensemble", "ensemble_2"] * 8
            answers = list(pool.map(lambda m: generate(server, m, **question()), models))
        for model, answer in zip(models, answers, strict=True):
            assert answer["model_name"] == model
            assert answer["text_output"] == (f"{PROMPT} {ANSWER}" if model == "ensemble" else f" {ANSWER}")
        page = without_gpu(requests.get(f"http://{server.metrics}/metrics", timeout=30).text)
        blocks = re.findall(
            r'nv_trt_llm_kv_cache_block_metrics\{kv_cache_block_type="max",model="(\w+)",version="1"\} (\d+)', page
        )
        assert dict(blocks) == {"tensorrt_llm": "200", "tensorrt_llm_2": "100"}
        succeeded = dict(re.findall(r'nv_inference_request_success\{model="(\w+)",version="1"\} (\d+)', page))
        assert succeeded["tensorrt_llm"] == succeeded["tensorrt_llm_2"] == "8"
        assert kv_blocks(server) == 0
        log = "\n".join(messages(server.log.read_text()))
        for owner in ("tensorrt_llm/1", "tensorrt_llm_2/1"):
            assert re.search(rf'memory taken share="{owner}: kv cache" bytes=[1-9]', log)


# --- the report ---


def table_lines(text):
    """Rows of the report: [key, value, source, effect]."""
    rows = re.findall(r"^  (\S+) +(\S.*?)  +(file|option|default|auto)  +(\w+.*)$", text, re.MULTILINE)
    return sorted(row for row in rows if row[0] != "key")


def test_inspect_prints_the_report_that_serve_logs(tmp_path):
    fill = {**FILLED, "max_beam_width": 1, "kv_cache_free_gpu_mem_fraction": 0.5, "gpu_device_ids": 0}
    repository = write_repository(tmp_path / "repository", 12, **fill)
    options = ["--max-kv-tokens", "32768", "--device", DEVICE]
    with serving(tmp_path, repository) as server:
        logged = table_lines(server.log.read_text())
    done = subprocess.run([INFLIGHT, "inspect", repository, *options], capture_output=True, text=True, timeout=60, check=True)
    assert table_lines(done.stdout) == logged
    for row in [
        ("kv_cache_free_gpu_mem_fraction", "0.5", "file", "honoured"),
        ("gpu_device_ids", "0", "file", "ignored: --device says where models run" if DEVICE == "cpu" else "honoured"),
        ("decoding_mode", "auto", "default", "honoured: left unfilled; top_k_top_p, since max_beam_width is 1"),
        ("max_tokens_in_paged_kv_cache", "32768", "option", "honoured: left unfilled"),
        ("decoupled", "True", "file", "honoured"),
        ("tensorrt_llm_model_name", "tensorrt_llm", "default", "honoured: left unfilled"),
    ]:
        assert (row[0], row[1].lower(), *row[2:]) in [(r[0], r[1].lower(), *r[2:]) for r in logged]
    for model in ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls"):
        assert f"model {model} version 1: READY" in done.stdout
    assert "KV cache" in done.stdout
