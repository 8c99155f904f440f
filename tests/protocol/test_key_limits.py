# SPDX-License-Identifier: Apache-2.0
"""What a key may have of an LLM: inferences in progress, deadlines, tokens of a period; over both protocols together."""

import concurrent.futures
import hashlib
import json
import re
import time

import pytest
import requests
import tritonclient.grpc as triton
from live_server import DEMO, start_server
from llm_client import Stream, tensors, wait_until
from tritonclient.utils import InferenceServerException

PATIENCE_S = 60
LIMITS = {
    "one": {"max_concurrent": 1},
    "patient": {"default_timeout_ms": 600000},
    "hasty": {"default_timeout_ms": 1},
    "strict": {"max_timeout_ms": 1},
    "frugal": {"tokens_per_period": 100, "period_s": 86400},
    "small": {"tokens_per_period": 40, "period_s": 86400},
    "streamer": {"requests_per_second": 0.001, "burst": 3},
    "asker": {"requests_per_second": 0.001, "burst": 1},
    "leaver": {},
    "free": {},
}
LONG = 900


def key_of(name, **limits):
    return {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "roles": ["inference"], **limits}


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    path = tmp_path_factory.mktemp("limits")
    access = {"keys": [key_of(name, **limits) for name, limits in LIMITS.items()], "anonymous": ["health", "metrics"]}
    (path / "access.json").write_text(json.dumps(access))
    server = start_server(path, DEMO, "--access", path / "access.json")
    server.access = path / "access.json"
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def generate(server, key, max_tokens=1, path="generate", timeout=120, **parameters):
    body = {"text_input": "Once upon a time", "max_tokens": max_tokens, "end_id": -1, "parameters": parameters}
    url = f"http://{server.http}/v2/models/ensemble/{path}"
    return requests.post(url, json=body, headers=bearer(key), timeout=timeout)


def infer_grpc(server, key, max_tokens=1):
    with triton.InferenceServerClient(server.grpc) as client:
        inputs = tensors(text_input="Once upon a time", max_tokens=max_tokens, end_id=-1)
        return client.infer("ensemble", inputs, headers=bearer(key))


def running(server):
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    gauges = re.findall(r'^nv_trt_llm_request_metrics\{.*request_type="active".*\} (\S+)$', page, re.MULTILINE)
    return sum(map(float, gauges))


def test_inferences_in_progress_are_bounded(limited):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(generate, limited, "one", LONG)
        wait_until(lambda: running(limited) == 1)
        for path in ("generate", "generate_stream"):
            refused = generate(limited, "one", path=path)
            assert refused.status_code == 429
            assert "key 'one' has 1 requests in progress, of at most max_concurrent = 1" in refused.json()["error"]
            assert "Retry-After" not in refused.headers  # nobody knows when one ends
        with pytest.raises(InferenceServerException, match="max_concurrent = 1") as error:
            infer_grpc(limited, "one")
        assert error.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        assert generate(limited, "free").ok
        assert not first.done()
        assert first.result().ok
    for _ in range(20):  # each begins as soon as the one before is answered
        assert generate(limited, "one").ok


def test_a_client_that_leaves_gives_its_place_back(limited):
    with pytest.raises(requests.exceptions.Timeout):
        generate(limited, "one", LONG, timeout=0.2)
    deadline = time.monotonic() + PATIENCE_S
    while generate(limited, "one").status_code == 429:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_requests_of_a_key_have_its_deadlines(limited):
    assert generate(limited, "patient").ok
    for key in ("hasty", "strict"):
        expired = generate(limited, key, LONG)
        assert expired.status_code == 503 and "Request timeout expired" in expired.text, expired.text
    with pytest.raises(InferenceServerException, match="Request timeout expired"):
        infer_grpc(limited, "hasty", LONG)


def test_tokens_of_a_period_are_bounded(limited):
    """The prompt has 5 tokens: what is asked for beside it is refused at 96 and served at 95, once."""
    num_prompt = 5
    refused = generate(limited, "frugal", 101 - num_prompt)
    assert refused.status_code == 429
    assert "Retry-After" not in refused.headers  # no period has so many
    wanted = f"key 'frugal' has 100 tokens left of tokens_per_period = 100, the request may take {101} (prompt and max_tokens)"
    assert wanted in refused.json()["error"]
    assert generate(limited, "frugal", 100 - num_prompt).ok
    again = generate(limited, "frugal")
    assert again.status_code == 429 and "has 0 tokens left" in again.json()["error"]
    assert f"try again in {again.headers['Retry-After']} s" in again.json()["error"]
    streamed = generate(limited, "frugal", path="generate_stream")
    assert streamed.status_code == 429 and 0 < int(streamed.headers["Retry-After"]) <= int(again.headers["Retry-After"])
    chat = requests.post(
        f"http://{limited.http}/v1/chat/completions", headers=bearer("frugal"), timeout=120,
        json={"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    )  # fmt: skip
    assert chat.status_code == 429 and int(chat.headers["Retry-After"]) > 0, chat.text
    with pytest.raises(InferenceServerException, match="has 0 tokens left") as error:
        infer_grpc(limited, "frugal")
    assert error.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


def test_other_apis_say_so_in_their_own_words(limited):
    said = [{"role": "user", "content": "Hi"}]
    bodies = {
        "/v1/chat/completions": {"messages": said, "max_tokens": 1},
        "/v1/completions": {"prompt": "Hi", "max_tokens": 1},
        "/v1/responses": {"input": "Hi", "max_output_tokens": 1},
        "/v1/messages": {"messages": said, "max_tokens": 1},
    }

    def ask(path):
        return requests.post(f"http://{limited.http}{path}", json=bodies[path], headers=bearer("asker"), timeout=120)

    assert ask("/v1/chat/completions").ok
    for path in bodies:
        refused = ask(path)
        error = refused.json()["error"]
        assert (refused.status_code, error["type"]) == (429, "rate_limit_error"), (path, refused.text)
        assert "key 'asker' has sent more than its requests_per_second of 0.001" in error["message"]
        assert int(refused.headers["Retry-After"]) > 0
        assert path == "/v1/messages" or error["code"] == "rate_limit_exceeded"


def test_what_was_taken_outlives_a_change_of_the_file(limited):
    assert generate(limited, "small", 30).ok
    before = json.loads(limited.access.read_text())
    keys = [{**key, **({"tokens_per_period": 41} if key["name"] == "small" else {})} for key in before["keys"]]
    limited.access.write_text(json.dumps({**before, "keys": keys}))
    wait_until(lambda: "tokens_per_period = 41" in generate(limited, "small", 500).text, PATIENCE_S)
    error = generate(limited, "small", 500).json()["error"]
    assert "has 6 tokens left of tokens_per_period = 41" in error  # 41 - 5 - 30


def test_each_request_of_a_stream_counts(limited):
    """The stream itself is one of the three, so the third request is one too many."""
    with triton.InferenceServerClient(limited.grpc) as client, Stream(client, headers=bearer("streamer")) as stream:
        outcomes = []
        for i in range(3):
            stream.send(str(i), tensors(text_input="a", max_tokens=1), enable_empty_final_response=True)
            result, error = stream.receive()
            outcomes.append(str(error) if error else "OK")
            while error is None and not result.get_response().parameters["triton_final_response"].bool_param:
                result, error = stream.receive()
    assert outcomes[:2] == ["OK", "OK"]
    assert "key 'streamer' has sent more than its requests_per_second of 0.001" in outcomes[2]


def test_a_stream_ends_with_its_key(limited):
    with triton.InferenceServerClient(limited.grpc) as client, Stream(client, headers=bearer("leaver")) as stream:

        def outcome():
            stream.send("1", tensors(text_input="a", max_tokens=1), enable_empty_final_response=True)
            result, error = stream.receive()
            while error is None and not result.get_response().parameters["triton_final_response"].bool_param:
                result, error = stream.receive()
            return str(error) if error else "OK"

        assert outcome() == "OK"
        before = json.loads(limited.access.read_text())
        limited.access.write_text(json.dumps({**before, "keys": [k for k in before["keys"] if k["name"] != "leaver"]}))
        wait_until(lambda: "key 'leaver' may no longer infer" in outcome(), PATIENCE_S)
    assert generate(limited, "leaver").status_code == 401
