# SPDX-License-Identifier: Apache-2.0
"""What the release that a repository is written for decides, and repositories that others changed.

Expectations are those of the releases' own scripts, which each test names, and of the demo model's exact answers.
"""

import itertools
import json
import queue
import re
import shutil
import subprocess

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from gpt_repository import write_gpt_repository
from live_server import DEMO, serving, start_server
from llm_api_repository import write_llm_api_repository
from llm_client import Stream, events
from release_repositories import V1, write_repository
from test_repositories import ANSWER, END_ID, INFLIGHT, PROMPT
from tokenizers import Tokenizer
from tritonclient.utils import np_to_triton_dtype

FILLED = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "True", "exclude_input_in_output": "True"}
TOKENIZER = Tokenizer.from_file(str(DEMO / "tokenizer.json"))


def post(server, action="generate", model="ensemble", **body):
    return requests.post(f"http://{server.http}/v2/models/{model}/{action}", json=body, timeout=60)


def stream(server, model="ensemble", **body):
    with requests.post(
        f"http://{server.http}/v2/models/{model}/generate_stream", json={**body, "stream": True}, stream=True, timeout=60
    ) as response:
        chunks = list(events(response))
    assert not any("error" in chunk for chunk in chunks), chunks
    return chunks


def rewrite(repository, model, *pairs):
    """Replaces patterns in a model's configuration."""
    path = repository / model / "config.pbtxt"
    text = path.read_text()
    for pattern, other in pairs:
        text, count = re.subn(pattern, other, text)
        assert count > 0, pattern
    path.write_text(text)


# --- what is declared and cannot be honoured ---


@pytest.mark.parametrize(
    ("release", "model", "tensor"),
    [
        (16, "preprocessing", {"name": "IMAGE_URL", "shape": [1, 1], "datatype": "BYTES", "data": ["a.png"]}),
        (16, "preprocessing", {"name": "IMAGE_BYTES", "shape": [1, 1, 1, 1, 1], "datatype": "UINT8", "data": [1]}),
        (16, "tensorrt_llm_bls", {"name": "image_url_input", "shape": [1, 1], "datatype": "BYTES", "data": ["a.png"]}),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else str(value),
)
def test_pictures_are_refused_where_they_are_used(repositories, release, model, tensor):
    server = repositories(release)
    names = ("QUERY", "REQUEST_OUTPUT_LEN") if model == "preprocessing" else ("text_input", "max_tokens")
    inputs = [
        {"name": names[0], "shape": [1, 1], "datatype": "BYTES", "data": [PROMPT]},
        {"name": names[1], "shape": [1, 1], "datatype": "INT32", "data": [4]},
    ]
    answer = post(server, "infer", model, inputs=[*inputs, tensor])
    assert answer.status_code in (400, 501)
    assert tensor["name"] in answer.json()["error"]


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    """Servers of a release each, kept while the module runs."""
    running = {}

    def get(release, **fill):
        if release not in running:
            path = tmp_path_factory.mktemp(f"r{release}")
            repository = write_repository(path / "repository", release, **{**FILLED, **fill})
            running[release] = start_server(path, None, "--model-repository", repository)
        return running[release]

    yield get
    for server in running.values():
        assert server.stop() == 0, server.log.read_text()[-4000:]


# --- repositories that others changed ---


def write_cog_repository(root):
    """As cog-triton changed 0.12: postprocessing passes ids on, which the ensemble answers with."""
    write_repository(root, 12, without=["tensorrt_llm_bls"], **FILLED)
    rewrite(root, "postprocessing", (r'("OUTPUT"\n\s+data_type: )TYPE_STRING', r"\1TYPE_INT32"))
    rewrite(
        root,
        "ensemble",
        (r'"text_output"\n\s+data_type: TYPE_STRING', '"output_ids"\n    data_type: TYPE_INT32'),
        (r'value: "text_output"', 'value: "output_ids"'),
    )
    return root


def test_a_postprocessing_of_ids_passes_them_on(tmp_path):
    expected = TOKENIZER.encode(" " + ANSWER, add_special_tokens=False).ids
    with serving(tmp_path, write_cog_repository(tmp_path / "repository")) as server:
        body = {"text_input": PROMPT, "max_tokens": 24, "stop_words": ["no such word"]}
        whole = post(server, **body).json()
        assert TOKENIZER.decode(whole["output_ids"]).strip() == ANSWER
        assert len(whole["output_ids"]) == len(expected)
        chunks = stream(server, **body)
        ids = [chunk["output_ids"] for chunk in chunks]
        joined = [id_ for chunk in ids for id_ in (chunk if isinstance(chunk, list) else [chunk])]
        assert joined == whole["output_ids"]
        assert all("text_output" not in chunk for chunk in chunks)
        tokens = {"inputs": [
            {"name": "TOKENS_BATCH", "shape": [1, 1, 3], "datatype": "INT32", "data": [3, 4, 5]},
            {"name": "SEQUENCE_LENGTH", "shape": [1, 1], "datatype": "INT32", "data": [3]},
        ]}  # fmt: skip
        output = post(server, "infer", "postprocessing", **tokens).json()["outputs"][0]
        assert (output["datatype"], output["data"]) == ("INT32", [3, 4, 5])


def test_a_bls_finds_text_models_of_other_names(tmp_path):
    root = write_repository(tmp_path / "repository", 11, **FILLED)
    for model in ("preprocessing", "postprocessing"):
        (root / model).rename(root / f"my_{model}")
        rewrite(root, f"my_{model}", (f'name: "{model}"', f'name: "my_{model}"'))
        rewrite(root, "ensemble", (f'model_name: "{model}"', f'model_name: "my_{model}"'))
    with serving(tmp_path, root) as server:
        for model in ("ensemble", "tensorrt_llm_bls"):
            assert post(server, model=model, text_input=PROMPT, max_tokens=24).json()["text_output"].strip() == ANSWER
        assert "taken=my_preprocessing" in server.log.read_text()


def test_the_repository_of_the_python_session(tmp_path):
    """all_models/gpt, which launch_triton_server.py starts where it is told of no other."""
    with serving(tmp_path, write_gpt_repository(tmp_path / "repository", 5, engine_dir=DEMO, tokenizer_dir=DEMO)) as server:
        body = {"text_input": PROMPT, "max_tokens": 24, "bad_words": "", "stop_words": "", "end_id": END_ID, "pad_id": END_ID}
        answer = post(server, **body, top_k=1, output_log_probs=False).json()
        assert answer["text_output"] == f"{PROMPT} {ANSWER}"
        assert post(server, **body, output_log_probs=True).json()["text_output"] == f"{PROMPT} {ANSWER}"
        ids = TOKENIZER.encode(PROMPT).ids
        for asked in (False, True):
            inputs = []
            for name, datatype, values in [
                ("input_ids", "INT32", [ids]), ("input_lengths", "INT32", [[len(ids)]]), ("request_output_len", "UINT32", [[5]]),
                ("end_id", "UINT32", [[END_ID]]), ("pad_id", "UINT32", [[END_ID]]), ("output_log_probs", "BOOL", [[asked]]),
            ]:  # fmt: skip
                inputs.append(triton.InferInput(name, [1, len(values[0])], datatype))
                inputs[-1].set_data_from_numpy(np.array(values, triton_type(datatype)))
            with triton.InferenceServerClient(server.grpc) as client:
                result = client.infer("tensorrt_llm", inputs)
            assert (result.as_numpy("log_probs") is not None) == asked
        assert result.as_numpy("log_probs").shape == (1, 1, 5)
        assert (result.as_numpy("log_probs") < 0).all()


def triton_type(datatype):
    return {"INT32": np.int32, "UINT32": np.uint32, "BOOL": bool}[datatype]


# --- the LLM API ---


def write_one_model(root, decoupled="False", **changed):
    """all_models/llmapi of 1.2, with keys more in its model.yaml, or other values of its keys."""
    write_llm_api_repository(root, V1, model=DEMO, decoupled=decoupled)
    path = root / "tensorrt_llm" / "1" / "model.yaml"
    text = path.read_text() + "pytorch_backend_config:\n  use_cuda_graph: False\nmoe_expert_parallel_size: 2\n"
    text = text.replace("triton_config:\n", "triton_config:\n  voices: 4\n")
    for key, value in changed.items():
        text = re.sub(rf"{key}: .*", f"{key}: {value}", text)
    path.write_text(text)
    return root


def ask(server, **body):
    return post(server, model="tensorrt_llm", **body).json()


@pytest.mark.parametrize("decoupled", [False, True], ids=["whole", "stream"])
def test_a_model_of_the_llm_api(tmp_path, decoupled):
    with serving(tmp_path, write_one_model(tmp_path / "repository", str(decoupled))) as server:
        plain = {"text_input": PROMPT, "sampling_param_max_tokens": 24, "sampling_param_exclude_input_from_output": True}
        if decoupled:
            with requests.post(
                f"http://{server.http}/v2/models/tensorrt_llm/generate_stream", json={**plain, "streaming": True}, stream=True,
                timeout=60,
            ) as response:  # fmt: skip
                texts = [chunk["text_output"] for chunk in events(response)]
            assert texts[-1].strip() == ANSWER
            assert all(later.startswith(text) for text, later in itertools.pairwise(texts)), "each is all so far"
            return
        assert ask(server, **plain)["text_output"].strip() == ANSWER
        assert ask(server, text_input=PROMPT, sampling_param_max_tokens=24)["text_output"] == f"{PROMPT} {ANSWER}"
        word = text_across_tokens()
        cut = ask(server, **plain, sampling_param_stop=[word], return_finish_reason=True, return_cumulative_logprob=True)
        assert ANSWER.startswith(cut["text_output"].strip()) and word not in cut["text_output"]
        assert (cut["finish_reason"], cut["cumulative_logprob"] < 0) == ("stop", True)
        story = {"text_input": "Tell me a story about a fox.", "sampling_param_exclude_input_from_output": True}
        default = ask(server, **story, return_finish_reason=True, sampling_param_return_perf_metrics=True)
        assert default["finish_reason"] == "length", "32 tokens where none are asked for"
        assert default["arrival_time_ns"] > 0
        long = {"text_input": " ".join(f"{n} and" for n in range(80)), "sampling_param_max_tokens": 2}
        first, again = (ask(server, **long, sampling_param_return_perf_metrics=True) for _ in range(2))
        assert (first["kv_cache_reused_block"], first["kv_cache_hit_rate"]) == (0, 0)
        assert first["kv_cache_missed_block"] == again["kv_cache_reused_block"] + again["kv_cache_missed_block"] > 0
        assert again["kv_cache_hit_rate"] == pytest.approx(again["kv_cache_reused_block"] / first["kv_cache_missed_block"])
        assert "sampling_param_best_of" in ask(server, **plain, sampling_param_best_of=3)["error"]
        assert "return_stop_reason" in ask(server, **plain, return_stop_reason=True)["error"]
        neutral = {"sampling_param_best_of": 1, "return_stop_reason": False}
        assert ask(server, **plain, **neutral)["text_output"].strip() == ANSWER
        log = server.log.read_text()
        for key in ["pytorch_backend_config", "moe_expert_parallel_size", "triton_config.voices"]:
            assert f'model=tensorrt_llm key={key}"' in log


def send_to_llm_api(client, answers, request_id, **values):
    inputs = []
    for name, value in values.items():
        array = np.array([value], dtype=object if isinstance(value, str) else None)
        inputs.append(triton.InferInput(name, [1], np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    client.async_infer("tensorrt_llm", inputs, lambda result, error: answers.put(result or error), request_id=request_id)


def test_a_stop_of_the_llm_api_ends_the_requests_of_its_id(tmp_path):
    """What upstream's triton_backend/tools/tests/test_llmapi_cancel.py expects, and of a request that runs an answer, too."""
    stop, long = {"text_input": "", "stop": True}, {"text_input": "Tell me a story.", "return_finish_reason": True}
    model = tmp_path / "endless"
    shutil.copytree(DEMO, model)
    for file in ("config.json", "generation_config.json"):
        settings = json.loads((model / file).read_text())
        (model / file).write_text(json.dumps({**settings, "eos_token_id": [2047]}))
    repository = write_one_model(tmp_path / "repository", model=model)
    with serving(tmp_path, repository) as server, triton.InferenceServerClient(server.grpc) as client:
        stopped, answers = queue.Queue(), queue.Queue()
        send_to_llm_api(client, stopped, "1", **stop)
        unknown = stopped.get(timeout=30)
        assert (unknown.status(), unknown.message()) == ("StatusCode.CANCELLED", "Request cancelled by client")
        send_to_llm_api(client, answers, "1", sampling_param_max_tokens=np.int32(900), **long)
        send_to_llm_api(client, stopped, "2", **stop)
        assert stopped.get(timeout=30).status() == "StatusCode.CANCELLED"
        while answers.empty():  # a stop may be there before the request is
            send_to_llm_api(client, stopped, "1", **stop)
            assert stopped.get(timeout=30).status() == "StatusCode.CANCELLED"
        answer = answers.get(timeout=30)
        assert answer.as_numpy("finish_reason")[0] == b"cancelled" and answer.as_numpy("text_output")[0].startswith(b"Tell me")
        send_to_llm_api(client, stopped, "", **stop)
        assert "A request id must be provided" in stopped.get(timeout=30).message()
        send_to_llm_api(client, answers, "1", sampling_param_max_tokens=np.int32(9), **long)
        assert answers.get(timeout=30).as_numpy("finish_reason")[0] == b"length"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size: got 2, a model of the LLM API runs on one rank"),
        ({"model": ""}, "model: is missing"),
        ({"model": "[1, 2"}, "model.yaml: line"),
        ({"decoupled": "maybe"}, "decoupled: got 'maybe', must be true or false"),
    ],
    ids=["ranks", "no model", "no YAML", "no flag"],
)
def test_what_is_wrong_with_a_model_yaml_is_named(tmp_path, changed, error):
    repository = write_one_model(tmp_path / "repository", **changed)
    command = [INFLIGHT, "serve", "--model-repository", repository, "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert error in done.stderr


# --- streamed responses ---


def test_each_streamed_response_has_what_was_asked_for(repositories):
    """convertResponse of the back-end adds metrics and context logits to every response, not to the last or the first alone."""
    server = repositories(19)
    ids = TOKENIZER.encode(PROMPT).ids
    asked = [
        ("input_ids", "INT32", [ids]), ("input_lengths", "INT32", [[len(ids)]]), ("request_output_len", "INT32", [[6]]),
        ("streaming", "BOOL", [[True]]), ("return_perf_metrics", "BOOL", [[True]]), ("return_context_logits", "BOOL", [[True]]),
    ]  # fmt: skip
    inputs = []
    for name, datatype, values in asked:
        inputs.append(triton.InferInput(name, [1, len(values[0])], datatype))
        inputs[-1].set_data_from_numpy(np.array(values, triton_type(datatype)))
    with triton.InferenceServerClient(server.grpc) as client, Stream(client) as s:
        s.send("p", inputs, model="tensorrt_llm", enable_empty_final_response=True)
        results = [r for r in s.receive_until_final() if r.get_response().outputs]
    assert len(results) > 2
    times = ["arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns"]
    for result in results:
        found = [int(result.as_numpy(name)[0][0]) for name in times]
        assert 0 < found[0] <= found[1] <= found[2]
        assert result.as_numpy("kv_cache_alloc_total_blocks")[0][0] > 0
        assert np.array_equal(result.as_numpy("context_logits"), results[0].as_numpy("context_logits"))
        assert result.as_numpy("context_logits").shape[1] == len(ids)
    assert results[-1].as_numpy("last_token_time_ns")[0][0] >= found[2]


@pytest.mark.parametrize(("release", "asks"), [(16, "return_kv_cache_reuse_stats"), (19, "return_perf_metrics")])
def test_blocks_of_a_prompt_are_counted_as_upstream_s_ci_counts_them(tmp_path, release, asks):
    """114 tokens in blocks of 64, sent twice: two new blocks, then the whole one is found and the begun one is new."""
    names = ("kv_cache_alloc_new_blocks", "kv_cache_alloc_total_blocks", "kv_cache_reused_blocks")
    repository = write_repository(tmp_path / "repository", release, **FILLED, enable_kv_cache_reuse="true")
    with serving(tmp_path, repository) as server:
        for first, length in ((300, 10), (700, 60)):  # in the prompt's last block, and beyond it
            body = {"input_ids": [first + i for i in range(114)], "input_lengths": 114, "request_output_len": length, asks: True}
            counts = [ask(server, **body) for _ in range(2)]
            assert [[count[name] for name in names] for count in counts] == [[2, 2, 0], [1, 1, 1]]


# --- stop words ---


def text_across_tokens():
    """From within a token of the answer into the next one: no tokenizer cuts it so."""
    ids = TOKENIZER.encode(" " + ANSWER, add_special_tokens=False).ids
    begins = [len(TOKENIZER.decode(ids[:n])) for n in range(1, len(ids))]
    text = TOKENIZER.decode(ids)
    parts = [text[at - 1 : at + 2] for at in begins if at > 1]
    return next(part for part in parts if len(part) == 3 and part.isascii() and text.count(part) == 1)


def test_stop_words_match_tokens_where_the_release_does(tmp_path):
    """Upstream's ensembles compare tokens; its BLS compares texts from 0.19 on."""
    word = text_across_tokens()
    body = {"text_input": PROMPT, "max_tokens": 24, "stop_words": [word]}
    for release, model, options, stops in [
        (11, "ensemble", (), False), (11, "ensemble", ("--stop-words=text",), True),
        (19, "ensemble", (), False), (19, "tensorrt_llm_bls", (), True),
        (19, "tensorrt_llm_bls", ("--stop-words=tokens",), False),
    ]:  # fmt: skip
        path = tmp_path / f"{release}-{model}-{len(options)}-{stops}"
        path.mkdir()
        with serving(path, write_repository(path / "repository", release, **FILLED), *options) as server:
            text = post(server, model=model, **body).json()["text_output"]
            assert text.endswith(word) if stops else text.strip() == ANSWER
            asked = post(server, model=model, **body, include_stop_str_in_output=False).json()["text_output"]
            assert word not in asked, "whoever says what becomes of the word means a text"


def test_serving_a_directory_matches_texts(server):
    word = text_across_tokens()
    text = post(server, text_input=PROMPT, max_tokens=24, stop_words=[word]).json()["text_output"]
    assert text.endswith(word)


# --- the log ---


def test_iterations_are_plain_json_in_the_log_of_0_10(tmp_path):
    """custom_metrics_verification_tests.py of 0.10 parses from the first brace to the end of the line."""
    with serving(tmp_path, write_repository(tmp_path / "repository", 10, **FILLED), "--log-verbose=1") as server:
        post(server, text_input=PROMPT, max_tokens=4)
        page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
        lines = [line for line in server.log.read_text().splitlines() if "Active Request Count" in line]
    record = json.loads(re.sub(r"^.*?{", "{", lines[-1]))
    samples = [line for line in page.splitlines() if line.startswith("nv_trt_llm")]
    assert len(record) == len(samples)
    assert record["Max Request Count"] > 0
