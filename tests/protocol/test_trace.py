# SPDX-License-Identifier: Apache-2.0
"""Traces of a running server: their files, and their export to a collector.

The texts and shapes of the settings are shown by the recorded cases http/trace, grpc/trace and trace_otel.
"""

import http.server
import json
import os
import pathlib
import subprocess
import threading

import numpy
import pytest
import requests
import tritonclient.grpc as triton
from conformance_models import add_ensemble, add_identity, infer_body
from live_server import DEMO, start_server
from llm_client import wait_until

RUN = [
    "REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END",
]  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    add_identity(folder, "identity")
    add_identity(folder, "other")
    add_ensemble(folder, "around", "identity")
    return folder


class Traced:
    """A server that traces into a file of its own."""

    def __init__(self, folder, repository, *words):
        self.file = folder / "trace.json"
        config = [f"triton,file={self.file}", *words]
        self.server = start_server(folder, None, "--model-repository", repository, *(f"--trace-config={word}" for word in config))

    def infer(self, model="identity", values=(1, 2), input_name="INPUT0", **members):
        url = f"http://{self.server.http}/v2/models/{model}/infer"
        response = requests.post(url, json=infer_body(list(values), input_name, **members), timeout=30)
        assert response.status_code == 200, response.text

    def set(self, body, model=None):
        path = f"models/{model}/trace/setting" if model else "trace/setting"
        response = requests.post(f"http://{self.server.http}/v2/{path}", json=body, timeout=30)
        assert response.status_code == 200, response.text
        return response.json()

    def stop(self):
        """Ends the server; what it left in the file."""
        assert self.server.stop() == 0, self.server.log.read_text()[-4000:]
        return json.loads(self.file.read_text()) if self.file.exists() else None


def requests_of(elements):
    return [element["request_id"] for element in elements if "request_id" in element]


def records_of(elements):
    """By id: who ran, and the names of its events in their order."""
    records = {}
    for element in elements:
        record = records.setdefault(element["id"], {"events": [], "times": [], "tensors": []})
        if "model_name" in element:
            record.update(element)
        for event in element.get("timestamps", []):
            record["events"].append(event["name"])
            record["times"].append(event["ns"])
        if "activity" in element:
            record["tensors"].append((element["activity"], element["tensor"]))
    return records


def test_timestamps_over_http_and_grpc(repository, tmp_path):
    traced = Traced(tmp_path, repository, "level=TIMESTAMPS", "rate=1")
    traced.infer(id="over http")
    tensor = triton.InferInput("INPUT0", [2], "INT32")
    tensor.set_data_from_numpy(numpy.array([3, 4], dtype=numpy.int32))
    with triton.InferenceServerClient(traced.server.grpc) as client:
        client.infer("identity", [tensor], request_id="over grpc")
        done = threading.Event()
        client.start_stream(lambda result, error: done.set())
        client.async_stream_infer("identity", [tensor], request_id="on a stream")
        assert done.wait(30)
        client.stop_stream()
    records = {record["request_id"]: record for record in records_of(traced.stop()).values()}
    ends = {"over http": ("HTTP_RECV", "HTTP_SEND")}
    ends |= dict.fromkeys(("over grpc", "on a stream"), ("GRPC_WAITREAD", "GRPC_SEND"))
    assert records.keys() == ends.keys()
    for request, (received, sent) in ends.items():
        record = records[request]
        assert (record["model_name"], record["model_version"]) == ("identity", 1)
        assert "parent_id" not in record
        answered = ["INFER_RESPONSE_COMPLETE", f"{sent}_START", f"{sent}_END"]
        assert record["events"] == [f"{received}_START", f"{received}_END", *RUN, *answered], request
        assert record["times"] == sorted(record["times"])


def test_an_ensembles_steps_name_their_parent(repository, tmp_path):
    traced = Traced(tmp_path, repository, "level=TIMESTAMPS", "rate=1")
    traced.infer("around", input_name="IN", id="r")
    records = list(records_of(traced.stop()).values())
    assert [r["model_name"] for r in records] == ["around", "identity"]
    assert records[1]["parent_id"] == records[0]["id"]
    assert records[1]["request_id"] == "r"
    assert records[1]["events"] == RUN
    own = [event for event in records[0]["events"] if not event.startswith("HTTP_")]
    assert own == ["REQUEST_START", "QUEUE_START", "REQUEST_END", "INFER_RESPONSE_COMPLETE"]


def test_tensors(repository, tmp_path):
    traced = Traced(tmp_path, repository, "level=TENSORS", "rate=1")
    traced.infer(values=(5, -6))
    (record,) = records_of(traced.stop()).values()
    assert record["events"] == []
    shape = {"data": "5,-6", "shape": "2", "dtype": "INT32"}
    assert record["tensors"] == [
        ("TENSOR_QUEUE_INPUT", {"name": "INPUT0", **shape}),
        ("TENSOR_BACKEND_INPUT", {"name": "INPUT0", **shape}),
        ("TENSOR_BACKEND_OUTPUT", {"name": "OUTPUT0", **shape}),
    ]


def test_rate_count_and_files(repository, tmp_path):
    traced = Traced(tmp_path, repository, "level=TIMESTAMPS", "rate=2", "count=3", "triton,log-frequency=2")
    for i in range(1, 9):
        traced.infer(id=f"r{i}")
    assert traced.set({})["trace_count"] == "0"
    assert traced.stop() is None, "all traces are in numbered files"
    files = [json.loads((tmp_path / f"trace.json.{i}").read_text()) for i in (0, 1)]
    assert [requests_of(elements) for elements in files] == [["r2", "r4"], ["r6"]]


def test_a_running_server_begins_and_ends_to_trace_a_model(repository, tmp_path):
    traced = Traced(tmp_path, repository)
    traced.infer(id="before")
    settings = traced.set({"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}, model="identity")
    assert (settings["trace_level"], settings["trace_rate"]) == (["TIMESTAMPS"], "1")
    traced.infer(id="during")
    traced.infer("other", id="another model")
    traced.set({"trace_level": None}, model="identity")
    traced.infer(id="after")
    assert requests_of(traced.stop()) == ["during"]


def test_the_former_flags(repository, tmp_path):
    file = tmp_path / "trace.json"
    server = start_server(
        tmp_path, None, "--model-repository", repository, "--trace-file", file, "--trace-level", "MAX", "--trace-rate", 1,
        "--trace-count", 5, "--trace-log-frequency", 1,
    )  # fmt: skip
    body = infer_body([1, 2], id="r")
    assert requests.post(f"http://{server.http}/v2/models/identity/infer", json=body, timeout=30).ok
    assert requests.get(f"http://{server.http}/v2/trace/setting", timeout=30).json() == {
        "trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "4", "log_frequency": "1",
        "trace_file": str(file), "trace_mode": "triton",
    }  # fmt: skip
    assert server.stop() == 0
    assert requests_of(json.loads((tmp_path / "trace.json.0").read_text())) == ["r"]
    assert "--trace-rate is deprecated, say --trace-config rate=1" in server.log.read_text()


@pytest.mark.parametrize("word", ["level=HIGH", "rate=x", "triton,path=x", "opentelemetry,url=https://c", "zipkin,url=x"])
def test_faulty_words_end_the_start(repository, word):
    command = [pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight", "serve", "--model-repository", repository]
    ended = subprocess.run([*command, f"--trace-config={word}"], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert f"--trace-config: got '{word}'" in ended.stderr


class Collector:
    """Takes what an OpenTelemetry collector would."""

    def __init__(self):
        self.bodies = bodies = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                bodies.append((self.path, self.headers["Content-Type"], body))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"

    def spans(self):
        scopes = [scope for _, _, body in self.bodies for r in body["resourceSpans"] for scope in r["scopeSpans"]]
        return [span for scope in scopes for span in scope["spans"]]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector():
    running = Collector()
    yield running
    running.close()


def start_exporting(tmp_path, repository, url, *words):
    config = ["mode=opentelemetry", "level=TIMESTAMPS", f"opentelemetry,url={url}", *words]
    return start_server(tmp_path, None, "--model-repository", repository, *(f"--trace-config={word}" for word in config))


def test_spans_go_to_the_collector(repository, tmp_path, collector):
    words = "rate=1", "opentelemetry,bsp_schedule_delay=50", "opentelemetry,resource=service.name=shop"
    server = start_exporting(tmp_path, repository, collector.url.removeprefix("http://"), *words)
    body = infer_body([1, 2], "IN", id="r")
    assert requests.post(f"http://{server.http}/v2/models/around/infer", json=body, timeout=30).ok
    wait_until(lambda: len(collector.spans()) == 4)
    assert server.stop() == 0
    path, content_type, exported = collector.bodies[0]
    assert (path, content_type) == ("/v1/traces", "application/json")
    attributes = exported["resourceSpans"][0]["resource"]["attributes"]
    assert {"key": "service.name", "value": {"stringValue": "shop"}} in attributes
    spans = {span["name"]: span for span in collector.spans()}
    assert spans.keys() == {"InferRequest", "around", "identity", "compute"}
    for child, parent in (("around", "InferRequest"), ("identity", "around"), ("compute", "identity")):
        assert spans[child]["parentSpanId"] == spans[parent]["spanId"]
    for span in spans.values():
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert span["traceId"] == spans["InferRequest"]["traceId"]
    # As qa/L0_trace/opentelemetry_unittest.py of triton-inference-server/server asks for them.
    assert events_of(spans["InferRequest"]) == [
        "HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END",
    ]  # fmt: skip
    for model in ("around", "identity"):
        assert events_of(spans[model]) == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert events_of(spans["compute"]) == ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]


def events_of(span):
    return [event["name"] for event in span["events"]]


def attributes_of(span):
    return {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}


def test_spans_of_language_models_follow_the_conventions(tmp_path, collector):
    """OpenTelemetry's "Semantic Conventions for Generative AI"; the counts are those that clients are told."""
    words = ["mode=opentelemetry", "level=TIMESTAMPS", f"opentelemetry,url={collector.url}", "rate=1"]
    server = start_server(tmp_path, DEMO, *(f"--trace-config={word}" for word in words))
    url = f"http://{server.http}/v1"
    models = [model["id"] for model in requests.get(f"{url}/models", timeout=30).json()["data"]]
    chat = {"model": models[0], "messages": [{"role": "user", "content": "What is 2 + 3?"}], "max_tokens": 3}
    asked = {
        "chat": requests.post(f"{url}/chat/completions", json=chat, timeout=60).json(),
        "text_completion": requests.post(f"{url}/completions", timeout=60,
                                         json={"model": models[0], "prompt": "The fox", "max_tokens": 2}).json(),
    }  # fmt: skip
    body = {"text_input": "The fox", "max_tokens": 2}
    assert requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60).ok
    assert server.stop() == 0
    found = [attributes_of(span) for span in collector.spans() if any(a["key"].startswith("gen_ai.") for a in span["attributes"])]
    assert len(found) == 3, "one span for each generation"
    for operation, answer in asked.items():
        span = next(attributes for attributes in found if attributes["gen_ai.operation.name"] == operation)
        assert span["gen_ai.provider.name"] == "inflight"
        assert span["gen_ai.request.model"] == span["gen_ai.response.model"] == span["triton.model_name"]
        assert int(span["gen_ai.usage.input_tokens"]) == answer["usage"]["prompt_tokens"]
        assert int(span["gen_ai.usage.output_tokens"]) == answer["usage"]["completion_tokens"]
        reasons = [value["stringValue"] for value in span["gen_ai.response.finish_reasons"]["values"]]
        assert reasons == [answer["choices"][0]["finish_reason"]]


def test_a_clients_context_is_traced_whatever_the_rate(repository, tmp_path, collector):
    server = start_exporting(tmp_path, repository, collector.url, "rate=0")
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    url = f"http://{server.http}/v2/models/identity/infer"
    assert requests.post(url, json=infer_body([1, 2]), timeout=30).ok
    assert requests.post(url, json=infer_body([1, 2]), headers=headers, timeout=30).ok
    tensor = triton.InferInput("INPUT0", [2], "INT32")
    tensor.set_data_from_numpy(numpy.array([3, 4], dtype=numpy.int32))
    with triton.InferenceServerClient(server.grpc) as client:
        client.infer("identity", [tensor], headers=headers)
    assert server.stop() == 0, "what waited for the collector has left at the end"
    roots = [span for span in collector.spans() if span["name"] == "InferRequest"]
    assert [(root["traceId"], root["parentSpanId"]) for root in roots] == [(trace_id, "b7ad6b7169203331")] * len(roots)
    assert len(roots) == 2


def test_a_collector_that_is_not_there_disturbs_nobody(repository, tmp_path):
    server = start_exporting(tmp_path, repository, "http://127.0.0.1:1/v1/traces", "rate=1")
    body = infer_body([1, 2])
    assert requests.post(f"http://{server.http}/v2/models/identity/infer", json=body, timeout=30).ok
    assert server.stop() == 0
    assert "traces are lost, since the collector did not take them" in server.log.read_text()
