# SPDX-License-Identifier: Apache-2.0
"""Clients that share a server: no prompt of one tells what another asked, and none ends what another runs."""

import concurrent.futures
import hashlib
import json
import uuid

import numpy as np
import pytest
import requests
from conformance_models import add_identity
from live_server import DEMO, start_server
from llm_client import kv_blocks, wait_until, wait_until_idle
from matrix_client import CLIENTS, ids_of, infer_rows
from release_repositories import OURS, write_repository
from tritonclient.utils import InferenceServerException, shared_memory

BLOCK_TOKENS = 64
ROADS = ("generate", "generate_stream", "http", "grpc")
KEYS = ("alice", "bob")
OTHER_KEYS = {"operator": ["metrics", "control"], "client": ["metrics", "inference"]}
FILLED = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "decoupled_mode": "False", "exclude_input_in_output": "True"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server with a key for each of KEYS, and for requests without any."""
    path = tmp_path_factory.mktemp("tenants")
    keys = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "roles": ["inference", "shared_memory"]}
        for name in KEYS
    ]  # fmt: skip
    for name, roles in OTHER_KEYS.items():
        keys.append({"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "roles": roles})
    (path / "access.json").write_text(json.dumps({"keys": keys, "anonymous": ["health", "inference", "metrics"]}))
    repository = write_repository(path / "repository", OURS, **FILLED)
    add_identity(repository, "identity")
    server = start_server(
        path, None, "--model-repository", repository, "--access", path / "access.json", "--allow-client-shm=true"
    )
    server.model_dir = DEMO
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def bearer(key):
    return {"authorization": f"Bearer {key}"} if key else {}


def new_prompt():
    """Nobody has sent it; its first three blocks are full, and differ from all others from the first token on."""
    prompt = f"{uuid.uuid4()} " + "Once upon a time there was a fox who told a story to a small bird. " * 20
    assert len(ids_of(prompt)) > 3 * BLOCK_TOKENS
    return prompt


def ask(server, transport, text, parameters=None, key=None):
    """num_cached_tokens of a request to the ensemble."""
    if transport in ("generate", "generate_stream"):
        body = {"text_input": text, "max_tokens": 1, "return_num_cached_tokens": True, "parameters": parameters or {}}
        url = f"http://{server.http}/v2/models/ensemble/{transport}"
        answer = requests.post(url, json=body, headers=bearer(key), timeout=120)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.text.removeprefix("data: "))["num_cached_tokens"]
    row = {"text": text, "max_tokens": 1, "return_num_cached_tokens": True}
    result = infer_rows(server, transport, "ensemble", [row], parameters=parameters, headers=bearer(key))
    return int(result.as_numpy("num_cached_tokens").reshape(-1)[0])


def whole_blocks(text):
    return (len(ids_of(text)) - 1) // BLOCK_TOKENS * BLOCK_TOKENS


@pytest.mark.parametrize("transport", ROADS)
def test_equal_prompts_share_blocks_under_one_salt_alone(shared, transport):
    prompt = new_prompt()
    cached = whole_blocks(prompt)
    assert ask(shared, transport, prompt, {"cache_salt": "a"}) == 0
    before = reused(shared)
    assert ask(shared, transport, prompt, {"cache_salt": "b"}) == 0
    assert ask(shared, transport, prompt) == 0
    assert reused(shared) == before
    for parameters in ({"cache_salt": "a"}, {"cache_salt": "b"}, None, {"cache_salt": ""}):
        assert ask(shared, transport, prompt, parameters) == cached, parameters
    assert reused(shared) == before + 4 * cached // BLOCK_TOKENS


def reused(server):
    """As who operates the server reads it."""
    return kv_blocks(server, "reused", bearer("operator"))


def test_who_infers_sees_no_sums_of_reuse(shared):
    """Who may ask before and after would learn what others found in the cache, in pages and in statistics."""
    prompt = new_prompt()
    for _ in range(2):
        ask(shared, "generate", prompt, key="alice")
    stats = f"http://{shared.http}/v2/models/tensorrt_llm/stats"
    telling = ("inflight_kv_blocks_reused_total", "inflight_prompt_tokens_cached_total", 'statistic="cache_hit_rate"',
               'kv_cache_block_type="reused"')  # fmt: skip
    for key in ("operator", "client", None):
        page = requests.get(f"http://{shared.metrics}/metrics", headers=bearer(key), timeout=30).text
        assert "inflight_prompt_tokens_total" in page
        assert [name in page for name in telling] == [key == "operator"] * len(telling), key
        (model,) = requests.get(stats, headers=bearer(key), timeout=30).json()["model_stats"]
        assert "inference_stats" in model
        assert ("iteration_stats" in model) == (key == "operator"), key


@pytest.mark.parametrize("transport", ROADS)
def test_two_keys_share_no_blocks(shared, transport):
    prompt = new_prompt()
    for key in (*KEYS, None):
        assert ask(shared, transport, prompt, key=key) == 0, key
    for key in (*KEYS, None):
        assert ask(shared, transport, prompt, key=key) == whole_blocks(prompt), key
    for key in KEYS:
        assert ask(shared, transport, prompt, {"cache_salt": "own"}, key) == 0, key
    # Nobody who cannot send a key takes its identity by naming it.
    guesses = [*KEYS, *(hashlib.sha256(key.encode()).hexdigest() for key in KEYS)]
    assert [ask(shared, transport, prompt, {"cache_salt": guess}) for guess in guesses] == [0] * len(guesses)


def test_a_salt_is_a_short_text(shared):
    for salt in (1, True, 0.5, "x" * 1025):
        body = {"text_input": "a", "max_tokens": 1, "cache_salt": salt}
        answer = requests.post(f"http://{shared.http}/v2/models/ensemble/generate", json=body, timeout=60)
        assert answer.status_code == 400 and "cache_salt: " in answer.json()["error"], answer.text
    with pytest.raises(InferenceServerException, match="cache_salt: the parameter has another type, must be a string"):
        ask(shared, "grpc", "a", {"cache_salt": 1})


# Of each API what it counts of a prompt's tokens as found in the cache; of cog the sum, since it tells nobody.
def ask_messages(server, prompt, salt):
    messages = [{"role": "user", "content": prompt}]
    body = {"model": server.model, "max_tokens": 1, "messages": messages} | salted(salt)
    return answer_of(f"http://{server.http}/v1/messages", body)["usage"]["cache_read_input_tokens"]


def ask_responses(server, prompt, salt):
    body = {"model": server.model, "max_output_tokens": 16, "input": prompt, "store": False} | salted(salt)
    return answer_of(f"http://{server.http}/v1/responses", body)["usage"]["input_tokens_details"]["cached_tokens"]


def ask_platform(url, prompt, salt):
    inputs = [("text_input", "BYTES", prompt), ("max_tokens", "INT32", 1), ("return_num_cached_tokens", "BOOL", True)]
    body = {
        "inputs": [{"name": name, "datatype": kind, "shape": [1, 1], "data": [value]} for name, kind, value in inputs],
        "parameters": salted(salt),
    }
    outputs = {output["name"]: output["data"] for output in answer_of(url, body)["outputs"]}
    return outputs["num_cached_tokens"][0]


def ask_cog(server, prompt, salt):
    before = tokens_found(server)
    body = {"input": {"prompt": prompt, "max_tokens": 1} | salted(salt)}
    prediction = answer_of(server.urls["cog"], body)
    assert prediction["status"] == "succeeded", prediction
    assert "cache_salt" not in json.dumps(prediction), "it is nobody else's to know"
    return tokens_found(server) - before


def tokens_found(server):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    lines = [line for line in page.splitlines() if line.startswith("inflight_prompt_tokens_cached_total{")]
    assert lines
    return sum(int(line.rsplit(" ", 1)[1]) for line in lines)


ELSEWHERE = {
    "messages": ask_messages,
    "responses": ask_responses,
    "sagemaker": lambda server, prompt, salt: ask_platform(server.urls["sagemaker"], prompt, salt),
    "vertex_ai": lambda server, prompt, salt: ask_platform(server.urls["vertex_ai"], prompt, salt),
    "cog": ask_cog,
}


def salted(salt):
    return {"cache_salt": salt} if salt is not None else {}


def answer_of(url, body):
    answer = requests.post(url, json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory):
    """The demo model behind every front end."""
    path = tmp_path_factory.mktemp("everywhere")
    environment = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "ensemble",
                   "AIP_HEALTH_ROUTE": "/health", "AIP_PREDICT_ROUTE": "/predict"}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        server = start_server(
            path, DEMO, "--cog-port=0", "--allow-sagemaker=true", "--sagemaker-port=0", "--allow-vertex-ai=true",
            "--vertex-ai-port=0", "--vertex-ai-default-model=ensemble",
        )  # fmt: skip
    ports = json.loads((path / "ports.json").read_text())
    routes = {"sagemaker": "invocations", "vertex_ai": "predict", "cog": "predictions"}
    server.urls = {name: f"http://127.0.0.1:{ports[name]}/{route}" for name, route in routes.items()}
    server.model = requests.get(f"http://{server.http}/v1/models", timeout=60).json()["data"][0]["id"]
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


@pytest.mark.parametrize("api", ELSEWHERE)
def test_a_salt_divides_blocks_in_every_api(everywhere, api):
    ask, prompt = ELSEWHERE[api], new_prompt()
    assert [ask(everywhere, prompt, salt) for salt in ("a", "b", None)] == [0, 0, 0]
    cached = [ask(everywhere, prompt, salt) for salt in ("a", "b", None, "")]
    assert cached[0] >= 3 * BLOCK_TOKENS
    assert cached == [cached[0]] * 4
    assert ask(everywhere, prompt, "c") == 0


def test_a_salt_that_is_too_long_is_refused_in_every_api(everywhere):
    salt, prompt = "x" * 1025, "a"
    messages = [{"role": "user", "content": prompt}]
    bodies = {
        f"http://{everywhere.http}/v1/messages": {"model": everywhere.model, "max_tokens": 1, "messages": messages},
        f"http://{everywhere.http}/v1/responses": {"model": everywhere.model, "input": prompt},
    }
    for url, body in bodies.items():
        answer = requests.post(url, json=body | salted(salt), timeout=60)
        assert answer.status_code == 400, answer.text
        assert "cache_salt" in answer.text
    body = {"input": {"prompt": prompt} | salted(salt)}
    prediction = requests.post(everywhere.urls["cog"], json=body, timeout=60).json()
    assert prediction["status"] == "failed"
    assert "cache_salt" in prediction["error"]


def send_ids(server, transport, row, request_id, key):
    return infer_rows(server, transport, "tensorrt_llm", [row], request_id=request_id, headers=bearer(key))


@pytest.mark.parametrize("transport", list(CLIENTS))
def test_a_stop_ends_requests_of_its_own_key(shared, transport):
    long = {"text": "Tell me a story about a fox.", "max_tokens": 900, "end_id": -1, "return_finish_reason": True}
    stop = {**long, "max_tokens": 1, "stop": True}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        alice = pool.submit(send_ids, shared, transport, long, "1", "alice")
        wait_until(lambda: kv_blocks(shared) > 0)
        bob = pool.submit(send_ids, shared, transport, long, "1", "bob")
        for key in ("bob", None):  # an answer to bob's own is waited for, so that it was stopped
            assert send_ids(shared, transport, stop, "1", key).as_numpy("output_ids") is None
        while not bob.done():  # it may have come to run after the stop
            send_ids(shared, transport, stop, "1", "bob")
        assert bob.result().as_numpy("finish_reason").tolist() == [[b"cancelled"]]
        assert not alice.done()
        send_ids(shared, transport, stop, "1", "alice")
        stopped = alice.result()
    assert stopped.as_numpy("finish_reason").tolist() == [[b"cancelled"]]
    assert 0 < int(np.max(stopped.as_numpy("sequence_length"))) < long["max_tokens"]
    wait_until_idle(shared)


@pytest.mark.parametrize("transport", list(CLIENTS))
def test_regions_of_a_key_are_unknown_to_others(shared, regions, transport):
    package = CLIENTS[transport]
    (key, region), (other, _) = regions(8), regions(8)
    shared_memory.set_shared_memory_region(region, [np.array([3, 4], np.int32)])

    def reads(client, headers):
        """What the model finds in region `r`."""
        tensor = package.InferInput("INPUT0", [2], "INT32")
        tensor.set_shared_memory("r", 8)
        return client.infer("identity", [tensor], headers=headers).as_numpy("OUTPUT0").tolist()

    with package.InferenceServerClient(getattr(shared, transport)) as client:
        client.register_system_shared_memory("r", key, 8, headers=bearer("alice"))
        assert reads(client, bearer("alice")) == [3, 4]
        for headers in (bearer("bob"), {}):
            with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'r'"):
                reads(client, headers)
            output = package.InferRequestedOutput("OUTPUT0")
            output.set_shared_memory("r", 8)
            tensor = package.InferInput("INPUT0", [2], "INT32")
            tensor.set_data_from_numpy(np.array([0, 0], np.int32))
            with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'r'"):
                client.infer("identity", [tensor], outputs=[output], headers=headers)
        status = client.get_system_shared_memory_status(headers=bearer("bob"))
        assert not (status if transport == "http" else status.regions)
        client.register_system_shared_memory("r", other, 8, headers=bearer("bob"))
        client.unregister_system_shared_memory(headers=bearer("bob"))
        assert reads(client, bearer("alice")) == [3, 4]
        client.unregister_system_shared_memory("r", headers=bearer("alice"))
