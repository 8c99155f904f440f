# SPDX-License-Identifier: Apache-2.0
"""The front end of cog (docs/reference/protocol/cog.md): against what cog 0.9.26 answered (recorded/cog/record.py), and
with the demo model, its webhooks received here."""

import hashlib
import http.client
import http.server
import json
import os
import pathlib
import re
import ssl
import threading

import pytest
import requests
from conformance_models import add_model, io
from live_server import DEMO, ROOT, is_sanitized, start_error, start_server
from llm_client import wait_until
from test_loading import Loading
from test_release_profiles import write_cog_repository

RECORDED = ROOT / "tests/protocol/recorded/cog"
EXCHANGES = json.loads((RECORDED / "exchanges.json").read_text())
SEQUENCE = sorted(name for name in EXCHANGES if name[0].isdigit())
PROMPT = "2 + 3 ="
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00")
# Where this server differs, its status and the reason in docs/reference/protocol/cog.md, "What differs".
OTHERWISE = {
    "no body": 422, "empty object": 422, "null input": 422,  # a fault of cog's, 500
    "slash": 404,  # a redirect
    "huge integer": 422,
}  # fmt: skip
# The same status with other words: of the parser, and of the URL's fault.
OTHER_WORDS = {"no JSON", 'member webhook "http://a b/"', 'member webhook "http://x:99999999/"'}
WORDS = "".join(
    io("input", name, "[ 1 ]", datatype)
    for name, datatype in {"text_input": "TYPE_STRING", "max_tokens": "TYPE_INT32", "stream": "TYPE_BOOL"}.items()
) + "".join(
    io("input", name, dims + " optional: true", datatype)
    for name, dims, datatype in (
        ("stop_words", "[ -1 ]", "TYPE_STRING"), ("min_length", "[ 1 ]", "TYPE_INT32"), ("top_k", "[ 1 ]", "TYPE_INT32"),
        ("top_p", "[ 1 ]", "TYPE_FP32"), ("temperature", "[ 1 ]", "TYPE_FP32"), ("length_penalty", "[ 1 ]", "TYPE_FP32"),
        ("presence_penalty", "[ 1 ]", "TYPE_FP32"), ("random_seed", "[ 1 ]", "TYPE_UINT64"),
        ("delay_us", "[ 1 ]", "TYPE_INT32"),
    )
) + io("output", "text_output", "[ 1 ]", "TYPE_STRING")  # fmt: skip


def cog_port(path):
    return json.loads((path / "ports.json").read_text())["cog"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """One prediction at a time of a model that says the words of its prompt, as the recorded predictor does."""
    path = tmp_path_factory.mktemp("words")
    policy = "model_transaction_policy { decoupled: true }"
    add_model(path / "models", "ensemble", "words", WORDS, policy)
    server = start_server(
        path, None, "--model-repository", path / "models", "--cog-port=0", "--cog-concurrency=1",
        "--cog-webhook-allow=*", max_kv_tokens=None,
    )  # fmt: skip
    yield server, cog_port(path)
    assert server.stop() == 0, server.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo model; (server, URL of cog)."""
    path = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEBHOOK_AUTH_TOKEN", "hook-secret")
        server = start_server(path, DEMO, "--cog-port=0", "--cog-webhook-allow=127.0.0.0/8")
    yield server, f"http://127.0.0.1:{cog_port(path)}"
    assert server.stop() == 0, server.log.read_text()[-4000:]


def ask(port, recorded):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = recorded["body"].encode() if recorded["body"] is not None else None
    connection.request(recorded["method"], recorded["path"], body, recorded["headers"])
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def comparable(text):
    """A body without what varies, which has its form."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if not isinstance(value, dict):
        return value
    setup = value.get("setup", {})
    for place, name in [(value, "started_at"), (value, "completed_at"), (setup, "started_at"), (setup, "completed_at")]:
        if place.get(name) is not None:
            assert TIME.fullmatch(place[name]), place[name]
            place[name] = "a time"
    if "logs" in value:
        assert isinstance(value.pop("logs"), str)
    if value.get("metrics"):
        assert value["metrics"]["predict_time"] >= 0
        value["metrics"] = "some"
    if str(value.get("error")).startswith("E1"):
        value["error"] = value["error"].split(":")[0]
    for error in value["detail"] if isinstance(value.get("detail"), list) else []:
        if not error["type"].startswith("value_error.number"):  # JSON's numbers: 5 and 5.0 are one
            error["ctx"] = None
    return value


@pytest.mark.parametrize("name", [name for name in EXCHANGES if not name[0].isdigit()])
def test_answers_are_those_of_cog(words, name):
    recorded = EXCHANGES[name]
    # One prediction at a time, and an earlier exchange may have started one.
    wait_until(lambda: requests.get(f"http://127.0.0.1:{words[1]}/health-check", timeout=60).json()["status"] == "READY")
    status, answer = ask(words[1], recorded)
    if name in OTHERWISE:
        assert status == OTHERWISE[name]
        assert status != recorded["status"] or name == "huge integer"
        return
    assert status == recorded["status"], answer
    if name in OTHER_WORDS:
        ours, theirs = (json.loads(text)["detail"][0] for text in (answer, recorded["answer"]))
        assert ours["loc"] == theirs["loc"][: len(ours["loc"])]
        assert ours["type"].split(".")[0] == theirs["type"].split(".")[0]
        return
    assert comparable(answer) == comparable(recorded["answer"])


def test_a_busy_server_answers_as_cog_does(words):
    server, port = words
    text = " ".join(["word"] * 100_000)
    blocker = requests.post(
        f"http://{server.http}/v2/models/ensemble/generate_stream", stream=True, timeout=60,
        json={"text_input": text, "max_tokens": 100_000, "stream": True, "delay_us": 20_000},
    )  # fmt: skip
    lines = blocker.iter_lines()  # held: without it the connection closes
    next(lines)  # it has the model's only instance
    for name in SEQUENCE:
        status, answer = ask(port, EXCHANGES[name])
        assert status == EXCHANGES[name]["status"], name
        ours, theirs = comparable(answer), comparable(EXCHANGES[name]["answer"])
        if "output" in theirs:
            ours["output"] = theirs["output"]  # the words so far, of which there are none yet
        assert ours == theirs, name
    blocker.close()


def without_descriptions(value):
    if isinstance(value, dict):
        return {k: without_descriptions(v) for k, v in value.items() if k != "description"}
    return [without_descriptions(v) for v in value] if isinstance(value, list) else value


def test_the_schema_is_that_of_cog(words):
    schema = requests.get(f"http://127.0.0.1:{words[1]}/openapi.json", timeout=30).json()
    assert without_descriptions(schema) == without_descriptions(json.loads((RECORDED / "openapi.json").read_text()))
    docs = requests.get(f"http://127.0.0.1:{words[1]}/docs", timeout=30)
    assert docs.ok
    assert all(path in docs.text for path in schema["paths"] if path != "/")


def generate(server, **inputs):
    body = {"text_input": PROMPT, "bad_words": "", "stop_words": "", "temperature": 0.0, **inputs}
    return requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60).json()["text_output"]


def test_a_prediction_has_the_text_of_the_ensemble(demo):
    server, cog = demo
    answer = requests.post(
        f"{cog}/predictions", json={"input": {"prompt": PROMPT, "max_tokens": 12, "temperature": 0}}, timeout=60
    )
    assert answer.status_code == 200
    prediction = answer.json()
    assert prediction["status"] == "succeeded"
    assert "".join(prediction["output"]) == generate(server, max_tokens=12)
    assert len(prediction["output"]) > 1
    assert prediction["metrics"]["output_token_count"] >= len(prediction["output"])
    assert f"Formatted prompt: `{PROMPT}`" in prediction["logs"]


def test_the_default_length_fits_the_model(demo):
    """512 tokens are asked for, of which the demo model's sequences have room for fewer or as many."""
    prediction = requests.post(f"{demo[1]}/predictions", json={"input": {"prompt": PROMPT}}, timeout=60).json()
    assert prediction["status"] == "succeeded", prediction["error"]


def test_the_text_ends_before_a_stop_sequence(demo):
    _, cog = demo

    def output(**inputs):
        body = {"input": {"prompt": "What is machine learning?", "max_tokens": 24, "temperature": 0, **inputs}}
        return "".join(requests.post(f"{cog}/predictions", json=body, timeout=60).json()["output"])

    whole = output()
    stop = whole[5:8]
    assert "," not in stop
    assert output(stop_sequences=f"never,{stop}") == whole[: whole.index(stop)]


def test_a_seed_repeats_a_draw(demo):
    body = {"input": {"prompt": PROMPT, "max_tokens": 24, "temperature": 5, "seed": 11}}
    first, second = (requests.post(f"{demo[1]}/predictions", json=body, timeout=60).json() for _ in range(2))
    assert first["output"] == second["output"]
    assert "Random seed used: `11`" in first["logs"]


def test_a_prompt_that_is_too_long_has_its_code(demo):
    prediction = requests.post(f"{demo[1]}/predictions", json={"input": {"prompt": "1 " * 100_000}}, timeout=60).json()
    assert prediction["status"] == "failed"
    assert re.match(r"E1002 PromptTooLong: .*Prompt length \(\d+.*\) exceeds maximum input length", prediction["error"])


def events(answer):
    parts = answer.text.split("\n\n")
    assert parts.pop() == ""
    for part in parts:
        name, data = part.split("\n")
        yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_events_of_a_stream(demo):
    body = {"id": "streamed", "input": {"prompt": PROMPT, "max_tokens": 12, "temperature": 0}}
    answer = requests.post(f"{demo[1]}/predictions", json=body, headers={"Accept": "text/event-stream"}, timeout=60)
    assert answer.headers["Content-Type"] == "text/event-stream"
    seen = list(events(answer))
    assert seen[0] == ("start", {"id": "streamed", "status": "processing"})
    outputs = [data for name, data in seen if name == "output"]
    assert [data["index"] for data in outputs] == list(range(len(outputs)))
    name, last = seen[-1]
    assert name == "completed"
    assert last["output"] == [data["chunk"] for data in outputs]
    assert {name for name, _ in seen} == {"start", "output", "log", "metric", "completed"}
    metrics = {data["name"]: data["value"] for name, data in seen if name == "metric"}
    assert metrics == {name: value for name, value in last["metrics"].items() if name != "predict_time"}


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps what webhooks send; `answers` are the next statuses."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.came = threading.Condition()
        self.calls = []
        self.answers = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def url(self, scheme="http"):
        return f"{scheme}://127.0.0.1:{self.server_address[1]}/hook"

    def wait_for_end(self):
        with self.came:
            ended = ("succeeded", "failed", "canceled")
            assert self.came.wait_for(lambda: self.calls and self.calls[-1][1]["status"] in ended, 30)
            return list(self.calls)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.answers.pop(0) if self.server.answers else 200
        with self.server.came:  # before the answer, behind which the next call comes on another thread
            if status == 200:
                self.server.calls.append((dict(self.headers), body))
            self.server.came.notify_all()
        self.send_response(status)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver():
    with Receiver() as running:
        yield running
        running.shutdown()


def test_webhooks_tell_of_a_prediction_that_nobody_waits_for(demo, receiver):
    body = {"id": "w", "input": {"prompt": PROMPT, "max_tokens": 12}, "webhook": receiver.url(), "mine": 1}
    answer = requests.post(f"{demo[1]}/predictions", json=body, headers={"Prefer": "respond-async"}, timeout=60)
    assert answer.status_code == 202
    assert answer.json()["status"] == "processing"
    calls = receiver.wait_for_end()
    headers, first = calls[0]
    assert headers["Authorization"] == "Bearer hook-secret"
    assert headers["User-Agent"].startswith("cog-worker/")
    assert first["status"] == "processing" and first["output"] is None
    # What cog's webhooks leave out as long as it is not set.
    assert not {"version", "error", "metrics", "completed_at"} & set(first)
    last = calls[-1][1]
    assert last["status"] == "succeeded"
    assert last["id"] == "w" and last["mine"] == 1 and last["webhook"] == receiver.url()
    assert not {"version", "error"} & set(last)


def test_webhooks_are_filtered_and_the_end_is_sent_again(demo, receiver):
    receiver.answers = [503, 500]
    body = {"input": {"prompt": PROMPT, "max_tokens": 4}, "webhook": receiver.url(), "webhook_events_filter": ["completed"]}
    assert requests.post(f"{demo[1]}/predictions", json=body, timeout=60).json()["status"] == "succeeded"
    calls = receiver.wait_for_end()
    assert [call["status"] for _, call in calls] == ["succeeded"]
    assert receiver.answers == []


def test_a_webhook_elsewhere_is_refused(demo):
    body = {"input": {"prompt": PROMPT}, "webhook": "http://192.0.2.1/"}
    answer = requests.post(f"{demo[1]}/predictions", json=body, timeout=60)
    assert answer.status_code == 422
    detail = answer.json()["detail"][0]
    assert detail["loc"] == ["body", "webhook"]
    assert "--cog-webhook-allow" in detail["msg"]


def test_webhooks_over_tls_trust_what_the_machine_trusts(tmp_path, certificates, receiver):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    add_model(tmp_path / "models", "ensemble", "words", WORDS, "model_transaction_policy { decoupled: true }")
    # What looks for leaks at the end stops the process's threads, which the sandbox forbids.
    sandbox = [] if is_sanitized() else ["--sandbox=best-effort", f"--sandbox-read={certificates.root.certificate}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificates.root.certificate))
        server = start_server(
            tmp_path, None, "--model-repository", tmp_path / "models", "--cog-port=0", "--cog-webhook-allow=127.0.0.1",
            *sandbox, max_kv_tokens=None,
        )  # fmt: skip
    body = {"input": {"prompt": "a b"}, "webhook": receiver.url("https")}
    assert requests.post(f"http://127.0.0.1:{cog_port(tmp_path)}/predictions", json=body, timeout=60).ok
    assert receiver.wait_for_end()[-1][1]["output"] == ["a", "b"]
    assert server.stop() == 0


def test_keys_hold_and_ids_are_their_own(tmp_path):
    roles = {"a": "inference", "b": "inference", "reader": "metrics", "admin": "control"}
    keys = [{"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "roles": [role]} for name, role in roles.items()]
    (tmp_path / "access.json").write_text(json.dumps({"keys": keys}))
    add_model(tmp_path / "models", "ensemble", "words", WORDS, "model_transaction_policy { decoupled: true }")
    server = start_server(
        tmp_path, None, "--model-repository", tmp_path / "models", "--access", tmp_path / "access.json", "--cog-port=0",
        max_kv_tokens=None,
    )  # fmt: skip
    url = f"http://127.0.0.1:{cog_port(tmp_path)}"

    def bearer(key):
        return {"Authorization": f"Bearer {key}"} if key else {}

    def statuses(method, path, names, **request):
        return [requests.request(method, url + path, headers=bearer(name), timeout=30, **request).status_code for name in names]

    assert requests.get(f"{url}/health-check", timeout=30).json()["status"] == "READY"
    body = {"input": {"prompt": "x"}}
    assert statuses("POST", "/predictions", [None, "guess", "reader", "a"], json=body) == [401, 401, 403, 200]
    assert statuses("GET", "/openapi.json", [None, "a"]) == [401, 200]
    assert statuses("POST", "/shutdown", [None, "a"]) == [401, 403]
    blocker = requests.post(
        f"http://{server.http}/v2/models/ensemble/generate_stream", stream=True, timeout=60, headers=bearer("a"),
        json={"text_input": " ".join(["word"] * 100_000), "max_tokens": 100_000, "stream": True, "delay_us": 20_000},
    )  # fmt: skip
    lines = blocker.iter_lines()  # held: without it the connection closes
    next(lines)
    waits = requests.put(f"{url}/predictions/one", json=body, headers=bearer("a") | {"Prefer": "respond-async"}, timeout=30)
    assert waits.status_code == 202
    assert statuses("POST", "/predictions/one/cancel", ["b", "a"]) == [404, 200]
    blocker.close()
    assert statuses("POST", "/shutdown", ["admin"]) == [200]
    assert server.process.wait(60) == 0


def test_a_shutdown_is_administration(tmp_path):
    add_model(tmp_path / "models", "ensemble", "words", WORDS, "model_transaction_policy { decoupled: true }")
    server = start_server(
        tmp_path, None, "--model-repository", tmp_path / "models", "--cog-port=0", "--admin-port=0", max_kv_tokens=None
    )
    url = f"http://127.0.0.1:{cog_port(tmp_path)}"
    assert requests.post(f"{url}/shutdown", timeout=30).status_code == 403
    page = {"Origin": "http://evil.example", "Content-Type": "application/json"}
    assert requests.post(f"{url}/predictions", json={"input": {"prompt": "x"}}, headers=page, timeout=30).status_code == 403
    assert server.stop() == 0


def test_the_environment_is_that_of_cog_triton(tmp_path):
    add_model(tmp_path / "models", "ensemble", "words", WORDS, "model_transaction_policy { decoupled: true }")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"SYSTEM_PROMPT": "sys", "PROMPT_TEMPLATE": "{system_prompt} {prompt}", "STOP_SEQUENCES": "x,y",
                            "LOG_PERFORMANCE_METRICS": "1", "COG_THROTTLE_RESPONSE_INTERVAL": "0.05"}.items():  # fmt: skip
            patch.setenv(name, value)
        server = start_server(
            tmp_path, None, "--model-repository", tmp_path / "models", "--cog-port=0", "--cog-model=ensemble",
            "--cog-thread-count=1", max_kv_tokens=None,
        )  # fmt: skip
    url = f"http://127.0.0.1:{cog_port(tmp_path)}"
    prediction = requests.post(f"{url}/predictions", json={"input": {"prompt": "a"}}, timeout=30).json()
    assert prediction["output"] == ["sys", "a"]
    assert prediction["input"]["stop_sequences"] == "x,y"
    assert prediction["logs"].startswith("Tokens processed: 2\nServerside tokens per second: ")
    schema = requests.get(f"{url}/openapi.json", timeout=30).json()["components"]["schemas"]["Input"]["properties"]
    assert schema["system_prompt"]["default"] == "sys"
    assert server.stop() == 0


def test_what_cannot_be_served_is_no_start(tmp_path):
    add_model(tmp_path / "models", "ensemble", "words", WORDS, "model_transaction_policy { decoupled: true }")
    inflight = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"
    command = [inflight, "serve", "--metrics-port=0", "--http-port=0", "--grpc-port=0", "--model-repository",
               tmp_path / "models", "--cog-port=0"]  # fmt: skip
    assert "--cog-model: " in start_error([*command, "--cog-model=three"])
    assert "--cog-webhook-allow: got 'a b'" in start_error([*command, "--cog-webhook-allow=a b"])
    assert "END_ID: got 'x', a number is needed" in start_error(command, END_ID="x")
    assert "COG_THROTTLE_RESPONSE_INTERVAL: got -1" in start_error(command, COG_THROTTLE_RESPONSE_INTERVAL="-1")


# --- while it is set up ---


def health(url):
    return requests.get(f"{url}/health-check", timeout=30).json()


def test_the_port_answers_while_models_are_being_loaded(tmp_path):
    server = Loading(tmp_path, "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--cog-port=0", "--cog-model=m")
    try:
        server.wait_until_loading()
        url = "http://" + server.wait_for(r"Listening, .*cog at ([0-9.:]+)")[1].replace("0.0.0.0", "127.0.0.1")
        assert health(url) == {"status": "STARTING", "setup": {}}
        body = {"input": {"prompt": "a"}}
        assert requests.post(f"{url}/predictions", json=body, timeout=30).status_code == 409
        assert requests.get(f"{url}/openapi.json", timeout=30).ok
        server.finish()
        assert server.process.wait(60) == 1
        assert "--cog-port: model 'm' has no output 'text_output'" in server.log.read_text()
    finally:
        server.end()


@pytest.mark.parametrize(
    ("kind", "wrong", "told"),
    [
        ("words", "max_batch_size: many", "not every model could be loaded; the server's log says why\n"),
        ("nobody", "", "model 'ensemble': "),
    ],
)
def test_a_setup_that_fails_is_told_where_the_server_stays(tmp_path, kind, wrong, told):
    add_model(tmp_path / "models", "ensemble", kind, WORDS, wrong)
    server = start_server(
        tmp_path, None, "--model-repository", tmp_path / "models", "--cog-port=0", "--exit-on-error=false", max_kv_tokens=None
    )
    found = health(f"http://127.0.0.1:{cog_port(tmp_path)}")
    assert (found["status"], found["setup"]["status"]) == ("SETUP_FAILED", "failed")
    assert found["setup"]["logs"].startswith(told)
    assert TIME.fullmatch(found["setup"]["completed_at"])
    assert server.stop() == 0


# --- an ensemble of ids ---


def test_the_text_of_an_ensemble_that_answers_ids_is_made_here(tmp_path, demo):
    """cog-triton's repository: the same outputs as of the demo model itself, stop words left out of them too."""
    _, expected = demo
    repository = write_cog_repository(tmp_path / "repository")
    server = start_server(tmp_path, None, "--model-repository", repository, "--cog-port=0")
    url = f"http://127.0.0.1:{cog_port(tmp_path)}"
    for asked in ({}, {"stop_sequences": "."}):
        body = {"input": {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, **asked}}
        texts = []
        for place in (url, expected):
            answer = requests.post(f"{place}/predictions", json=body, timeout=60).json()
            assert answer["status"] == "succeeded", answer
            texts.append("".join(answer["output"]))
        assert texts[0] == texts[1] != ""
        assert asked == {} or "." not in texts[0]
        events = requests.post(f"{url}/predictions", json=body, headers={"Accept": "text/event-stream"}, timeout=60).text
        chunks = re.findall(r"^event: output\ndata: (.*)$", events, re.MULTILINE)
        assert "".join(json.loads(chunk)["chunk"] for chunk in chunks) == texts[0] and len(chunks) > 2
    answer = requests.post(
        f"http://{server.http}/v2/models/ensemble/generate", json={"text_input": PROMPT, "max_tokens": 4}, timeout=60
    ).json()
    assert "text_output" not in answer and len(answer["output_ids"]) > 0
    assert server.stop() == 0
